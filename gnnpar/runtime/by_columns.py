"""`PullByColumns`: a fixed linear aggregation whose gradients cross between ways added up by column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph import kernels
from gnnpar.graph.norm import PullScales
from gnnpar.history import CutStore, Reads
from gnnpar.parallel import Halo, SampledHalo
from gnnpar.runtime.aggregation import PullAggregation

__all__ = ["PullByColumns"]


class PullByColumns(PullAggregation):
    """As `PullAggregation`, over the sample of a `SampledHalo`. A row of D would serve edges that are in the
    sample and edges that are not, so its reader sends what it has for each column in the sample instead.

    Memory: N · K more.
    """

    def __init__(self, cut: CutStore, scales: PullScales, halo: SampledHalo) -> None:
        super().__init__(cut, scales)
        self.halo = halo
        self._sums: Tensor | None = None

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        sample = self.halo.sample(slot, reads)
        if self._sums is None:
            self._sums = self.cut.new_copy().zero_()
        c = self.scales.c
        part = self.z.new_empty(sample.columns.numel(), self.z.shape[1])
        kernels.pull(
            sample.outer.indptr,
            sample.outer.indices,
            self.z,
            part,
            weight=sample.outer.weight,
            scale=None if c is None else c[sample.columns],
        )
        self._sums[sample.columns] = part
        halo.collect(self._sums, slot, reads, layer, "cut gradient")

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        assert self._sums is not None
        edges = self.halo.sample((chunk,), reads).inner
        arrived = self._sums[chunk.start : chunk.stop]
        gradient = torch.empty_like(arrived)
        c = self.scales.c
        kernels.pull(
            edges.indptr[chunk.start : chunk.stop + 1],
            edges.indices,
            self.z,
            gradient,
            weight=edges.weight,
            self_rows=chunk.start if self.scales.self_loops else None,
            scale=None if c is None else c[chunk.start : chunk.stop],
            residual=arrived,
            b=1.0,
        )
        arrived.zero_()
        return self.cut.shaped(gradient)
