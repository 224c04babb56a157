"""Which rows of every chunk other ways read, and which of their chunks read them: pure index lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gnnpar.batch import ChunkedGraph

__all__ = ["Reading", "reading"]


@dataclass(frozen=True)
class Reading:
    """Rows of one chunk that the chunks of one way read.

    Attributes:
        rows: `[n]` ascending, distinct.
        readers: `[n, C / g]` bool: which chunks of the way read the row.
    """

    rows: Tensor
    readers: Tensor

    def read_by(self, chunks: Tensor) -> Tensor:
        """The rows that some of these chunks, `[C / g]` bool, read. Cost: O(n · C / g), or none if all do."""
        return self.rows if bool(chunks.all()) else self.rows[self.readers[:, chunks].any(1)]


def reading(
    chunked: ChunkedGraph, rows: Tensor, readers: Tensor, way: int, chunks_of: Sequence[range]
) -> dict[tuple[int, int], Reading]:
    """{(chunk, way that reads it): `Reading`} of what crosses into or out of one way; others do not matter.

    Args:
        rows: `[E]`, what is read along every edge.
        readers: `[E]`, the vertex that reads it.
        chunks_of: the chunks of every way, as many each, as in `Mesh`.

    Cost: O(E) memory, O(k log k) time for k edges that cross.
    """
    way_of = torch.empty(chunked.num_chunks, dtype=torch.int64, device=rows.device)
    for number, chunks in enumerate(chunks_of):
        way_of[list(chunks)] = number
    by, of = chunked.chunk_of[readers.long()].long(), chunked.chunk_of[rows.long()].long()
    ends = way_of[by], way_of[of]
    crosses = (ends[0] != ends[1]) & ((ends[0] == way) | (ends[1] == way))
    pairs = torch.unique(rows[crosses].long() * chunked.num_chunks + by[crosses])
    rows, by = pairs // chunked.num_chunks, pairs % chunked.num_chunks
    offsets = torch.tensor(chunked.offsets, device=rows.device)
    found = {}
    for peer, chunks in enumerate(chunks_of):
        of_peer = way_of[by] == peer
        distinct, place = torch.unique_consecutive(rows[of_peer], return_inverse=True)
        table = torch.zeros(distinct.numel(), len(chunks), dtype=torch.bool, device=rows.device)
        table[place, by[of_peer] - chunks.start] = True
        bounds = torch.searchsorted(distinct, offsets).tolist()
        for chunk, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                found[chunk, peer] = Reading(distinct[start:stop], table[start:stop])
    return found
