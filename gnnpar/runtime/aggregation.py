"""Aggregation of a chunk: forward through its in-edges, backward through its out-edges.

An aggregation owns the buffers of one graph layer on one stage. For every chunk the stage calls, in this
order, `write` (the cut enters the buffer), `forward`, and in the backward pass `push_back` then `pull_back`;
the chunks of one slot finish each of these before the next begins. After `write` comes `share`, after
`push_back` comes `share_back`, where other ways run chunks of the slot, too; `carry` ends a slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph import kernels
from gnnpar.graph.norm import PullScales
from gnnpar.history import CutStore, Reads
from gnnpar.model.layer import Layer
from gnnpar.model.rows import Rows
from gnnpar.parallel import Halo

__all__ = ["Aggregation", "PullAggregation", "PushAggregation"]


class Aggregation(Protocol):
    """What a stage needs of the aggregation of one layer."""

    cut: CutStore

    @property
    def idle(self) -> Tensor | None:
        """`[N, K]` that holds nothing between steps, if there is such a buffer."""

    def over(self, cut: CutStore, scales: PullScales | None) -> Aggregation:
        """The same operator over another cut, for evaluation between steps: the histories stay.

        Args:
            scales: of the graph that is evaluated (for `Pull`).
        """

    def state(self) -> dict[str, Any]:
        """What later steps read: tensors in use, not copies, and the shape of a row."""

    def load(self, state: Mapping[str, Any], chunks: Sequence[Chunk]) -> None:
        """Put back what `state` gave, between two steps."""

    def write(self, chunk: Chunk, x: Tensor, reads: Reads) -> None:
        """Store the chunk's cut `[n, K]` in the live copy."""

    def share(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        """Send and receive rows of the cut, once the way's chunks of the slot have written theirs."""

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        """Z `[n, K]` of the chunk, ready to be differentiated with respect to."""

    def replay(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        """The same Z again, for recomputation in the backward pass."""

    def push_back(self, chunk: Chunk, reads: Reads) -> None:
        """Take over the gradient that autograd left for the chunk's Z."""

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        """Send and receive what the slot's ∂X needs, once the way's chunks of it have pushed back."""

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        """∂X `[n, K]` of the chunk: what the chunks of its own and of later slots send back."""

    def carry(self, slot: Sequence[Chunk], reads: Reads) -> None:
        """Make what the slot leaves ready for earlier slots, once all its chunks have pulled back."""


class PullAggregation:
    """Fixed linear aggregation: Z = r ⊙ A (c ⊙ X), ∂X = c ⊙ Aᵀ (r ⊙ D), by rows, with the same kernel.

    The buffer of Z serves D too: a chunk's Z is last needed for the gradient of the part that follows it, and
    that is when its D is known. Memory: (copies + 1) · N · K, or copies · N · K + R · K.

    Args:
        scales: r, c `[N]`, edge weights and self-loop flag of the layer's operator on this graph.
        packs: where a step runs some of the chunks, Z holds the rows of these only: R instead of N, the most
            that a step may have.
        compensates: D outlives the step: later ones read it for chunks that they do not run.
    """

    def __init__(
        self,
        cut: CutStore,
        scales: PullScales,
        z: Tensor | None = None,
        *,
        packs: bool = False,
        compensates: bool = False,
    ) -> None:
        self.cut = cut
        self.scales = scales
        self.packs = packs
        self.compensates = compensates
        self._z = z
        self._places: Mapping[Chunk, int] | None = None
        self._room = cut.num_rows
        self._leaves: dict[Chunk, Tensor] = {}
        self._arrived: list[Tensor] = []

    @property
    def z(self) -> Tensor:
        """`[N, K]`, or `[R, K]`: Z where a chunk has run forward, then r ⊙ D where it has run backward."""
        if self._z is None or self._z.shape[0] != self._room:
            self._z = self.cut.new_copy(self._room)
            if self.compensates:
                self._z.zero_()
        return self._z

    @property
    def idle(self) -> Tensor | None:
        return None if self.compensates or self.packs else self._z

    def over(self, cut: CutStore, scales: PullScales | None) -> PullAggregation:
        if self.compensates or self.packs:
            return _ForwardPull(cut, scales or self.scales)
        return PullAggregation(cut, scales or self.scales, self._z)

    def state(self) -> dict[str, Any]:
        kept = {"gradient": self.z} if self.compensates and self._z is not None else {}
        return self.cut.state() | kept

    def load(self, state: Mapping[str, Any], chunks: Sequence[Chunk]) -> None:
        self.cut.load(state)
        if "gradient" in state:
            self.z.copy_(state["gradient"])

    def write(self, chunk: Chunk, x: Tensor, reads: Reads) -> None:
        self.cut.write(chunk.start, x, reads.live, _slice(self.scales.c, chunk))

    def share(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        halo.spread(self.cut.rows(reads.live), slot, reads, layer, "cut")

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        self._pull(chunk, reads)
        return self.replay(chunk, rows, reads)

    def forward_mixed(self, chunk: Chunk, reads: Reads, residual: Tensor, share: float) -> Tensor:
        """(1 - share) · Z + share · residual, for steps that are differentiated by hand."""
        self._pull(chunk, reads, residual=residual, a=1 - share, b=share)
        return self._rows(chunk)

    def _pull(
        self, chunk: Chunk, reads: Reads, residual: Tensor | None = None, a: float = 1, b: float = 0
    ) -> None:
        if self.packs:
            self._places = None if reads.exact else reads.places
            self._room = reads.planner.chunked.graph.num_nodes
            if self._places is not None:
                self._room = reads.planner.most_rows(len(self._places))
        edges = reads.forward_edges
        own = reads.live - reads.forward_base + chunk.start
        kernels.pull(
            edges.indptr[chunk.start : chunk.stop + 1],
            edges.indices,
            self.cut.buffer[reads.forward_base :],
            self._rows(chunk),
            weight=edges.weight,
            self_rows=own if self.scales.self_loops else None,
            scale=_slice(self.scales.r, chunk),
            residual=residual,
            a=a,
            b=b,
        )

    def replay(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        # `.data` has a version counter of its own: D is written into other chunks' rows of this buffer while
        # autograd still needs these.
        leaf = self.cut.shaped(self._rows(chunk).data).requires_grad_(torch.is_grad_enabled())
        self._leaves[chunk] = leaf
        return leaf

    def push_back(self, chunk: Chunk, reads: Reads) -> None:
        gradient = self._leaves.pop(chunk).grad
        rows = self._rows(chunk)
        if gradient is None:
            rows.zero_()
        else:
            kernels.scale_rows(gradient.reshape(rows.shape), _slice(self.scales.r, chunk), rows)

    def push_back_mixed(
        self, chunk: Chunk, gradient: Tensor, share: float, residual_gradient: Tensor
    ) -> None:
        """As `push_back`, given the gradient of what `forward_mixed` returned; sums the residual's."""
        scale = _slice(self.scales.r, chunk)
        kernels.split_rows(gradient, scale, self._rows(chunk), residual_gradient, a=1 - share, b=share)

    def rows_to_write(self, chunk: Chunk, like: Tensor, reads: Reads) -> Tensor:
        """Where the chunk's cut times c goes, `[n, K]`, for whoever writes it there directly."""
        self.cut.allocate(like)
        return self.stored_cut(chunk, reads)

    def column_scale(self, chunk: Chunk) -> Tensor | None:
        """c of the chunk's rows, `[n]`; None for ones."""
        return _slice(self.scales.c, chunk)

    def stored_z(self, chunk: Chunk) -> Tensor:
        """What the chunk's forward pass left, `[n, K]`."""
        return self._rows(chunk)

    def stored_cut(self, chunk: Chunk, reads: Reads) -> Tensor:
        """The chunk's rows of the live copy `[n, K]`, times c."""
        return self.cut.buffer[reads.live + chunk.start : reads.live + chunk.stop]

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        self._arrived = halo.spread(self.z, slot, reads, layer, "aggregation gradient")

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        edges = reads.backward_edges if self._places is None else reads.packed_edges
        gradient = torch.empty_like(self._rows(chunk))
        kernels.pull(
            edges.indptr[chunk.start : chunk.stop + 1],
            edges.indices,
            self.z,
            gradient,
            weight=edges.weight,
            self_rows=self._start(chunk) if self.scales.self_loops else None,
            scale=_slice(self.scales.c, chunk),
        )
        return self.cut.shaped(gradient)

    def carry(self, slot: Sequence[Chunk], reads: Reads) -> None:
        if reads.carried_factor != 1.0:
            for chunk in slot:
                self._rows(chunk).mul_(reads.carried_factor)
            for rows in self._arrived:
                self.z[rows] *= reads.carried_factor
        self._arrived = []

    def _rows(self, chunk: Chunk) -> Tensor:
        start = self._start(chunk)
        return self.z[start : start + chunk.num_rows]

    def _start(self, chunk: Chunk) -> int:
        return chunk.start if self._places is None else self._places[chunk]


class _ForwardPull(PullAggregation):
    """Holds the Z of one chunk at a time: for forward passes without a backward pass."""

    def _rows(self, chunk: Chunk) -> Tensor:
        if self._z is None or self._z.shape[0] < chunk.num_rows:
            self._z = self.cut.buffer.new_empty(chunk.num_rows, self.cut.buffer.shape[1])
        return self._z[: chunk.num_rows]


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


def _slice(values: Tensor | None, chunk: Chunk) -> Tensor | None:
    return None if values is None else values[chunk.start : chunk.stop]
