"""Sources of micro-batches."""

from gnnpar.batch.chunked import Chunk, ChunkedGraph, chunk_order, make_block
from gnnpar.batch.disk import load_chunked, save_chunked

__all__ = ["Chunk", "ChunkedGraph", "chunk_order", "load_chunked", "make_block", "save_chunked"]
