"""Which rows of every chunk other ways read, and which of their chunks read them: pure index lists."""

from __future__ import annotations

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
    chunked: ChunkedGraph, rows: Tensor, readers: Tensor, way: int, ways: int
) -> dict[tuple[int, int], Reading]:
    """{(chunk, way that reads it): `Reading`} of what crosses into or out of one way; others do not matter.

    Way w of g has chunks w · C/g to (w+1) · C/g - 1, as in `Mesh`.

    Args:
        rows: `[E]`, what is read along every edge.
        readers: `[E]`, the vertex that reads it.

    Cost: O(E) memory, O(k log k) time for k edges that cross.
    """
    width = chunked.num_chunks // ways
    by, of = chunked.chunk_of[readers.long()].long(), chunked.chunk_of[rows.long()].long()
    crosses = (by // width != of // width) & ((by // width == way) | (of // width == way))
    pairs = torch.unique(rows[crosses].long() * chunked.num_chunks + by[crosses])
    rows, by = pairs // chunked.num_chunks, pairs % chunked.num_chunks
    offsets = torch.tensor(chunked.offsets, device=rows.device)
    found = {}
    for peer in range(ways):
        of_peer = by // width == peer
        distinct, place = torch.unique_consecutive(rows[of_peer], return_inverse=True)
        table = torch.zeros(distinct.numel(), width, dtype=torch.bool, device=rows.device)
        table[place, by[of_peer] % width] = True
        ends = torch.searchsorted(distinct, offsets).tolist()
        for chunk, (start, stop) in enumerate(pairwise(ends)):
            if start < stop:
                found[chunk, peer] = Reading(distinct[start:stop], table[start:stop])
    return found
