"""Aggregations of a way that keeps rows of its own only, in steps of one slot: every sum is a joint one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph.norm import PullScales
from gnnpar.history import CutStore, Reads
from gnnpar.model.layer import Layer
from gnnpar.model.rows import Rows
from gnnpar.parallel import Halo, PartByPart, Product
from gnnpar.runtime.aggregation import ForwardPull, PullAggregation
from gnnpar.runtime.push import PushAggregation

__all__ = ["OwnRowsPull", "OwnRowsPush"]


class OwnRowsPull(PullAggregation):
    """Fixed linear aggregation as a product that the ways compute together.

    Memory: 2 · n · K for the way's n rows, and ∂X `[n, K]` while a layer runs backward.

    Args:
        cut: of the way's rows.
    """

    def __init__(self, cut: CutStore, scales: PullScales, product: Product) -> None:
        super().__init__(cut, scales)
        self.product = product
        self._gradient: Tensor | None = None

    @property
    def idle(self) -> Tensor | None:
        return None

    def over(self, cut: CutStore, scales: PullScales | None) -> PullAggregation:
        return ForwardPull(cut, scales or self.scales)

    def share(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        loops, scale = self.scales.self_loops, self.scales.r
        self.product.multiply(
            self.cut.buffer, self.z, reads, layer, back=False, scale=scale, self_loops=loops
        )

    def _pull(
        self,
        chunk: Chunk,
        reads: Reads,
        out: Tensor,
        residual: Tensor | None = None,
        a: float = 1,
        b: float = 0,
    ) -> None:
        if residual is not None:  # the sum itself has been written by `share`
            out.mul_(a).add_(residual, alpha=b)

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        loops, scale = self.scales.self_loops, self.scales.c
        self._gradient = torch.empty_like(self.z)
        self.product.multiply(self.z, self._gradient, reads, layer, back=True, scale=scale, self_loops=loops)

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        assert self._gradient is not None
        return self.cut.shaped(self._gradient[self.cut.rows_of(chunk)])

    def carry(self, slot: Sequence[Chunk], reads: Reads) -> None:
        self._gradient = None


class OwnRowsPush(PushAggregation):
    """Any other operator: rows of other ways are fetched for it, forgotten, and fetched again by `replay`.

    Memory: n · K for the way's n rows, and columns and gradients of a slot while a layer runs.

    Args:
        cut: of the way's rows.
    """

    def __init__(self, cut: CutStore, layer: Layer, parts: PartByPart) -> None:
        super().__init__(cut, layer)
        self.parts = parts
        self._layer, self._slot_size, self._served = -1, 0, 0
        self._far: Tensor | None = None
        self._sums: Tensor | None = None

    def share(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        self._layer, self._slot_size = layer, len(slot)
        self._fetch()

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        if self._far is None:
            self._fetch()
        assert self._far is not None
        columns = reads.columns(chunk)
        read = torch.cat([self.cut.buffer, self._far])[self._places(columns.vertices)]
        self._served += 1
        if self._served == self._slot_size:
            self._far = None
        leaf = self.cut.shaped(read).requires_grad_(torch.is_grad_enabled())
        if leaf.requires_grad:
            self._leaves[chunk] = leaf
        return self.layer.aggregate(leaf, columns.block, rows)

    def push_back(self, chunk: Chunk, reads: Reads) -> None:
        gradient = self._leaves.pop(chunk).grad
        if gradient is not None:
            places = self._places(reads.columns(chunk).vertices)
            self.sums.index_add_(0, places, gradient.flatten(1))

    @property
    def sums(self) -> Tensor:
        """`[n + h, K]`: gradients of the way's rows and of those of others that it reads."""
        if self._sums is None:
            size = self.cut.num_rows + self.parts.far.numel()
            self._sums = self.cut.buffer.new_zeros(size, self.cut.buffer.shape[1])
        return self._sums

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        own, far = self.sums[: self.cut.num_rows], self.sums[self.cut.num_rows :]
        self.parts.give_back(far, own, layer)

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        return self.cut.shaped(self.sums[self.cut.rows_of(chunk)])

    def carry(self, slot: Sequence[Chunk], reads: Reads) -> None:
        self._sums = None

    def _fetch(self) -> None:
        self._far, self._served = self.parts.fetch(self.cut.buffer, self._layer), 0

    def _places(self, vertices: Tensor) -> Tensor:
        """Of vertices in the way's rows followed by `far`."""
        own, far = self.parts.peers.own, self.parts.far
        near = vertices - own.start
        outside = self.cut.num_rows + torch.searchsorted(far, vertices)
        return torch.where((near >= 0) & (near < self.cut.num_rows), near, outside)
