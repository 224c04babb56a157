"""`PushAggregation`: aggregation of a chunk by operators that look at single edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph.norm import PullScales
from gnnpar.history import CutStore, Reads
from gnnpar.model.layer import Layer
from gnnpar.model.rows import Rows
from gnnpar.parallel import Halo

__all__ = ["PushAggregation"]


class PushAggregation:
    """Any other operator: the chunk's columns enter as a leaf; their gradients are added up column by column.

    Per-edge tensors exist for one chunk at a time where the stage recomputes, else for all chunks in flight.
    Memory: (copies + 1) · N · K.

    Args:
        remembers: recomputation needs what a chunk read, and the cut will not hold it any more.
        compensates: gradients for columns of chunks outside the step are kept until these run.
    """

    def __init__(
        self, cut: CutStore, layer: Layer, remembers: bool = False, compensates: bool = False
    ) -> None:
        self.cut = cut
        self.layer = layer
        self.remembers = remembers
        self.compensates = compensates
        self._gradient: Tensor | None = None
        self._leaves: dict[Chunk, Tensor] = {}
        self._seen: dict[Chunk, Tensor] = {}
        self._sent: dict[Chunk, tuple[Tensor, Tensor]] = {}
        self._received: Reads | None = None

    @property
    def gradient(self) -> Tensor:
        """`[N, K]`: what later chunks have sent back so far; zero between steps."""
        if self._gradient is None:
            self._gradient = self.cut.new_copy().zero_()
        return self._gradient

    @property
    def idle(self) -> Tensor | None:
        return None

    def over(self, cut: CutStore, scales: PullScales | None) -> PushAggregation:
        return PushAggregation(cut, self.layer)

    def state(self) -> dict[str, Any]:
        return self.cut.state() | {"sent": {chunk.index: sent for chunk, sent in self._sent.items()}}

    def load(self, state: Mapping[str, Any], chunks: Sequence[Chunk]) -> None:
        self.cut.load(state)
        self._sent = {chunks[index]: sent for index, sent in state["sent"].items()}

    def write(self, chunk: Chunk, x: Tensor, reads: Reads) -> None:
        self.cut.write(chunk.start, x, reads.live)

    def share(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        halo.spread(self.cut.rows(reads.live), slot, reads, layer, "cut")

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        columns = reads.columns(chunk)
        read = self._seen.pop(chunk, None)
        leaf = self.cut.shaped(self.cut.buffer[columns.buffer_rows]) if read is None else read
        if torch.is_grad_enabled():
            self._leaves[chunk] = leaf.requires_grad_()
        elif self.remembers:
            self._seen[chunk] = leaf
        return self.layer.aggregate(leaf, columns.block, rows)

    def replay(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        return self.forward(chunk, rows, reads)

    def push_back(self, chunk: Chunk, reads: Reads) -> None:
        if self.compensates and self._received is not reads:
            self._received = reads
            self._add_sent(reads)
        gradient = self._leaves.pop(chunk).grad
        if gradient is None:
            return
        columns = reads.columns(chunk)
        # A chunk's columns are distinct: each row is added to once, so only the order of chunks matters.
        weighted = gradient.flatten(1) * columns.gradient_factor.to(gradient.dtype)[:, None]
        self.gradient.index_add_(0, columns.vertices, weighted)
        if self.compensates:
            others = slice(chunk.num_rows, None)
            self._sent[chunk] = columns.vertices[others], gradient.flatten(1)[others]

    def _add_sent(self, reads: Reads) -> None:
        """What chunks outside the step left for those of the step."""
        runs = reads.position < len(reads.slots)
        for chunk, (vertices, gradient) in self._sent.items():
            if not runs[chunk.index]:
                wanted = runs[reads.planner.chunked.chunk_of[vertices].long()]
                self.gradient.index_add_(0, vertices[wanted], gradient[wanted])

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        halo.collect(self.gradient, slot, reads, layer, "cut gradient")

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        rows = self.gradient[chunk.start : chunk.stop]
        gradient = rows.clone()
        rows.zero_()
        return self.cut.shaped(gradient)

    def carry(self, slot: Sequence[Chunk], reads: Reads) -> None:
        """Nothing: gradients were weighted when they were pushed."""
