"""Sources of micro-batches: vertex chunks of the whole graph, and sampled mini-batches."""

from gnnpar.batch.chunked import Chunk, ChunkedGraph, chunk_order, make_block, slot_order
from gnnpar.batch.cluster import ClusterSampler
from gnnpar.batch.configured import Seeds, configured_sampler
from gnnpar.batch.disk import load_chunked, save_chunked
from gnnpar.batch.layerwise import LayerSampler, Linear
from gnnpar.batch.neighbour import NeighbourSampler
from gnnpar.batch.prefetch import Prefetch
from gnnpar.batch.saint import SaintSampler
from gnnpar.batch.saint_draws import Draws, edge_draws, node_draws, walk_draws
from gnnpar.batch.sampled import Batch, BatchKey, Sampler
from gnnpar.batch.seeds import SeedBatches
from gnnpar.batch.shadow import ShadowSampler
from gnnpar.batch.step import Mini, MiniBatch, SampledStep

__all__ = [
    "Batch",
    "BatchKey",
    "Chunk",
    "ChunkedGraph",
    "ClusterSampler",
    "Draws",
    "LayerSampler",
    "Linear",
    "Mini",
    "MiniBatch",
    "NeighbourSampler",
    "Prefetch",
    "SaintSampler",
    "SampledStep",
    "Sampler",
    "SeedBatches",
    "Seeds",
    "ShadowSampler",
    "chunk_order",
    "configured_sampler",
    "edge_draws",
    "load_chunked",
    "make_block",
    "node_draws",
    "save_chunked",
    "slot_order",
    "walk_draws",
]
