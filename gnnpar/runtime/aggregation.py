"""Aggregation of a chunk: forward through its in-edges, backward through its out-edges.

An aggregation owns the buffers of one graph layer on one stage. For every chunk the stage calls, in this
order, `write` (the cut enters the buffer), `forward`, and in the backward pass `push_back` then `pull_back`;
the chunks of one slot finish each of these before the next begins. After `write` comes `share`, after
`push_back` comes `share_back`, where other ways run chunks of the slot, too; `carry` ends a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph import kernels
from gnnpar.graph.norm import PullScales
from gnnpar.history import CutStore, Reads
from gnnpar.model.rows import Rows
from gnnpar.parallel import Coming, Halo

__all__ = ["Aggregation", "ForwardPull", "PullAggregation"]


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
        self._coming: tuple[Halo, Coming] | None = None
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
            return ForwardPull(cut, scales or self.scales)
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
        self._coming = halo, halo.begin(self.cut.rows(reads.live), slot, reads, layer, "cut")

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        self._place(reads)
        self._pull(chunk, reads, self._rows(chunk))
        return self.replay(chunk, rows, reads)

    def forward_mixed(self, chunk: Chunk, reads: Reads, residual: Tensor, share: float) -> Tensor:
        """(1 - share) · Z + share · residual, for steps that are differentiated by hand."""
        self._place(reads)
        out = self._rows(chunk)
        self._pull(chunk, reads, out, residual=residual, a=1 - share, b=share)
        return out

    def _place(self, reads: Reads) -> None:
        """Where the rows of the step's chunks are in Z."""
        if self.packs:
            self._places = None if reads.exact else reads.places
            self._room = reads.planner.chunked.graph.num_nodes
            if self._places is not None:
                self._room = reads.planner.most_rows(len(self._places))

    def _pull(
        self,
        chunk: Chunk,
        reads: Reads,
        out: Tensor,
        residual: Tensor | None = None,
        a: float = 1,
        b: float = 0,
    ) -> None:
        edges, base = reads.forward_edges, reads.forward_base
        for start, stop in self._ranges(chunk, "cut"):
            within = slice(start - chunk.start, stop - chunk.start)
            kernels.pull(
                edges.indptr[start : stop + 1],
                edges.indices,
                self.cut.buffer[base:],
                out[within],
                weight=edges.weight,
                self_rows=reads.live - base + start if self.scales.self_loops else None,
                scale=None if self.scales.r is None else self.scales.r[start:stop],
                residual=None if residual is None else residual[within],
                a=a,
                b=b,
            )

    def _ranges(
        self, chunk: Chunk, what: Literal["cut", "aggregation gradient"]
    ) -> Iterator[tuple[int, int]]:
        """Rows of a chunk to be summed one after the other: while rows of other ways are on their way, first
        those that need none of them."""
        start = chunk.start
        if self._coming is not None:
            halo, coming = self._coming
            start += halo.inner(chunk, what)
            if start > chunk.start:
                yield chunk.start, start
            coming.land()
            self._coming = None
        if start < chunk.stop:
            yield start, chunk.stop

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
        return self.cut.rows(reads.live)[self.cut.rows_of(chunk)]

    def share_back(self, slot: Sequence[Chunk], reads: Reads, halo: Halo, layer: int) -> None:
        coming = halo.begin(self.z, slot, reads, layer, "aggregation gradient")
        self._coming, self._arrived = (halo, coming), coming.indices

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        edges = reads.backward_edges if self._places is None else reads.packed_edges
        gradient = torch.empty_like(self._rows(chunk))
        for start, stop in self._ranges(chunk, "aggregation gradient"):
            within = slice(start - chunk.start, stop - chunk.start)
            kernels.pull(
                edges.indptr[start : stop + 1],
                edges.indices,
                self.z,
                gradient[within],
                weight=edges.weight,
                self_rows=self._start(chunk) + within.start if self.scales.self_loops else None,
                scale=None if self.scales.c is None else self.scales.c[start:stop],
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
        return chunk.start - self.cut.first if self._places is None else self._places[chunk]


class ForwardPull(PullAggregation):
    """For forward passes without a backward pass: Z is made anew for every chunk, and nothing is kept."""

    def forward(self, chunk: Chunk, rows: Rows, reads: Reads) -> Tensor:
        z = torch.empty_like(self.stored_cut(chunk, reads))
        self._pull(chunk, reads, z)
        return self.cut.shaped(z)


def _slice(values: Tensor | None, chunk: Chunk) -> Tensor | None:
    return None if values is None else values[chunk.start : chunk.stop]
