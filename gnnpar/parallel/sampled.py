"""`SampledHalo`: a random part of the boundary rows, drawn in every step (BNS-GCN)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.graph.kernels import DropoutKey, keep_mask
from gnnpar.history import Edges, Reads
from gnnpar.parallel.halo import Coming, Halo, Route, What

__all__ = ["Sample", "SampledHalo"]

_SITE = 1 << 16
"""Apart from the sites of dropout."""


@dataclass(frozen=True)
class Sample:
    """Which gradients a way sends in one step, and along which edges gradients come back at all.

    Attributes:
        columns: `[m]` rows of other ways that are in the sample.
        outer: out-edges of these m rows into this way's rows.
        inner: the same of all N rows, so of this way's own.
    """

    columns: Tensor
    outer: Edges
    inner: Edges


class SampledHalo(Halo):
    """Reads each row of another way with probability p in a step, times 1 / p, else not at all (BNS-GCN,
    Wan et al. 2022, Algorithm 1): an aggregation is right in expectation, its degrees are those of the whole
    graph. Gradients go back along the edges of the sample, times 1 / p, added up by column.

    There is one draw a step for all layers, by the way that reads: a hash of (seed, step, way, original
    vertex id), which both ends know. (The authors' code draws a fixed number of rows for each pair of ways,
    and sends which; in the paper rows are independent, as here.)

    Bytes: for every layer, K elements for each row and way in the sample, forward and again backward.

    For fixed linear aggregations. Of others a sample is no estimate: attention over some neighbours is not
    part of the attention over all of them.

    Args:
        rate: p.
        seed: of the run.
    """

    def __init__(
        self,
        chunked: ChunkedGraph,
        mesh: Mesh,
        column: int,
        way: int,
        transport: Transport,
        rate: float,
        seed: int,
    ) -> None:
        super().__init__(chunked, mesh, column, way, transport)
        self.rate = rate
        self.seed = seed
        self._inner: Edges | None = None
        self._sample: tuple[Reads, Sample] | None = None

    def begin(self, rows: Tensor, slot: Sequence[Chunk], reads: Reads, layer: int, what: What) -> Coming:
        """As `Halo.begin`; rows that are not in the sample become zero."""
        rows[self._mirrors] = 0.0
        return super().begin(rows, slot, reads, layer, what)

    def sample(self, slot: Sequence[Chunk], reads: Reads) -> Sample:
        """The sample of a step; all layers share it. Cost: its edges."""
        if self._sample is None or self._sample[0] is not reads:
            if self._inner is None:
                self._inner = _edges_into(slot, reads)
            routes = self.routes(slot, reads, "cut gradient")
            columns = torch.cat([route.theirs for route in routes])
            self._sample = reads, Sample(columns, _of_rows(columns, self._inner), self._inner)
        return self._sample[1]

    def _needed(self, chunks: Sequence[Chunk], reader: int, reads: Reads, what: What) -> Tensor:
        rows = super()._needed(chunks, reader, reads, what)
        key = DropoutKey(self.seed, reads.step, reader, _SITE)
        return rows[keep_mask(key, self.chunked.graph.node_ids[rows], 1, 1.0 - self.rate)[:, 0]]

    def _exchange(
        self,
        routes: Sequence[Route],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        slot: Sequence[Chunk],
        reads: Reads,
        layer: int,
        what: What,
    ) -> Iterable[Tensor]:
        arrived = super()._exchange(routes, outgoing, incoming, slot, reads, layer, what)
        return (part.mul_(1.0 / self.rate) for part in arrived)

    @cached_property
    def _mirrors(self) -> Tensor:
        """Every row of others that this way reads, in the sample or not."""
        own = [found.rows for (_, reader), found in self._forward.items() if reader == self.way]
        return torch.cat([self.chunked.graph.indices.new_empty(0, dtype=torch.int64), *own])


def _edges_into(slot: Sequence[Chunk], reads: Reads) -> Edges:
    """Out-edges of every row into those of `slot`, which are next to each other."""
    indptr, indices, weight = reads.planner.transpose
    first, last = min(chunk.start for chunk in slot), max(chunk.stop for chunk in slot)
    inside = (indices >= first) & (indices < last)
    before = indptr.new_zeros(indices.numel() + 1)
    torch.cumsum(inside, 0, out=before[1:])
    return Edges(before[indptr], indices[inside], None if weight is None else weight[inside])


def _of_rows(rows: Tensor, edges: Edges) -> Edges:
    """The CSR of some rows."""
    start = edges.indptr[rows]
    length = edges.indptr[rows + 1] - start
    indptr = length.new_zeros(rows.numel() + 1)
    torch.cumsum(length, 0, out=indptr[1:])
    within = torch.arange(int(indptr[-1]), device=rows.device) - torch.repeat_interleave(indptr[:-1], length)
    at = torch.repeat_interleave(start, length) + within
    return Edges(indptr, edges.indices[at], None if edges.weight is None else edges.weight[at])
