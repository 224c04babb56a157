"""`Reads`: what every chunk of one step reads, along which edges, from which copy of the cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gnnpar.batch import Chunk, make_block
from gnnpar.graph.block import Block
from gnnpar.history.edges import keep_edges, redirect_edges

if TYPE_CHECKING:
    from gnnpar.history.planner import ReadsPlanner

__all__ = ["Columns", "Edges", "Reads"]


@dataclass(frozen=True, slots=True)
class Edges:
    """CSR over all N rows: `indptr` `[N + 1]`, `indices` `[E']`, `weight` `[E']` or None."""

    indptr: Tensor
    indices: Tensor
    weight: Tensor | None


@dataclass(frozen=True)
class Columns:
    """A chunk's block; for each of its M columns the vertex, the buffer row, and the gradient's factor."""

    block: Block
    vertices: Tensor
    buffer_rows: Tensor
    gradient_factor: Tensor


@dataclass(frozen=True)
class Reads:
    """One step's answer to "who reads what".

    Where replicas run different chunks, `of` gives the answer for each: a chunk of another replica counts as
    one that runs later, so it is read from history, and as one that ran earlier in the backward pass, so it
    sends no gradient.

    Attributes:
        slots: the chunks in the order in which they run; those of one slot run together.
        position: `[C]` int32, the slot of every chunk, or the number of slots if it does not run in this
            step, or another replica runs it.
        live, stale: offsets in the buffer of the copy being written, and of the one read as history.
        age: steps since the histories read in this step were computed, the mean over these reads (0: none are
            read).
        history_share: share of all edge reads that are historical.
        kept: a later step will read rows of this one.
        streams: the replica that runs each slot.
        views: of each replica, where there are several.
        age_max: of the oldest row read.
        num_reads: edge reads of the step.
        num_updates: that the step makes, each over as many slots as the others.
        step: number of the step.
    """

    planner: ReadsPlanner
    slots: tuple[tuple[Chunk, ...], ...]
    position: Tensor
    live: int
    stale: int
    age: float
    history_share: float
    kept: bool = False
    streams: tuple[int, ...] = ()
    replica: int = 0
    views: tuple[Reads, ...] = ()
    age_max: int = 0
    num_reads: int = 0
    num_updates: int = 1
    step: int = 0

    def of(self, replica: int) -> Reads:
        """What the chunks of one replica read."""
        return self.views[replica] if self.views else self

    def ran(self, replica: int) -> tuple[Chunk, ...]:
        """The chunks that a replica runs, in order."""
        pairs = zip(self.slots, self.streams, strict=True)
        return tuple(chunk for slot, runs in pairs if runs == replica for chunk in slot)

    @cached_property
    def exact(self) -> bool:
        """All chunks run together."""
        return sum(chunk.num_rows for chunk in self.slots[0]) == self.planner.chunked.graph.num_nodes

    @cached_property
    def labelled(self) -> int:
        """Training labels of the step: what its loss is the mean over."""
        return self.planner.chunked.num_labels(chunk for slot in self.slots for chunk in slot)

    @cached_property
    def normaliser(self) -> float:
        """What the step's summed loss is divided by: its labels, or 1 where it has none.

        With compensation, gradients of several steps add up, so all of them divide by the mean number of
        labels of a step.
        """
        chunked, policy = self.planner.chunked, self.planner.policy
        if policy.compensate:
            return (chunked.num_labels((chunked.whole,)) or 1) / policy.steps_per_epoch
        return self.labelled or 1

    def divisor(self, chunk: Chunk) -> float:
        """What a chunk's summed loss is divided by: that of the update which it is part of."""
        if self.num_updates == 1:
            return self.normaliser
        return self._divisors[int(self.position[chunk.index]) * self.num_updates // len(self.slots)]

    def loss_share(self, chunk: Chunk) -> float:
        """What the mean loss of a chunk's update counts in the step's: its share of the labels."""
        if self.num_updates == 1:
            return 1.0
        return self.divisor(chunk) / (self.labelled or 1)

    @cached_property
    def _divisors(self) -> tuple[int, ...]:
        size = len(self.slots) // self.num_updates
        parts = [self.slots[at : at + size] for at in range(0, len(self.slots), size)]
        return tuple(self.planner.chunked.num_labels(c for slot in part for c in slot) or 1 for part in parts)

    @cached_property
    def forward_edges(self) -> Edges:
        """In-edges of every row; columns point into the buffer of the cut from row `forward_base` on."""
        graph = self.planner.chunked.graph
        whole = Edges(graph.indptr, graph.indices, graph.edge_weight)
        if self.exact or (self.planner.policy.mode == "latest" and self.live == self.stale):
            return whole
        order = (self.planner.chunked.chunk_of, self.position)
        if self.planner.policy.mode == "drop":
            return Edges(*keep_edges(graph.indptr, graph.indices, *order, "not_after", graph.edge_weight))
        redirected = redirect_edges(
            graph.indptr, graph.indices, *order, self.live, self.stale, self.planner.scratch(self.replica)
        )
        return Edges(graph.indptr, redirected, graph.edge_weight)

    @property
    def forward_base(self) -> int:
        """Buffer row that column 0 of `forward_edges` means."""
        redirected = not self.exact and self.live != self.stale
        return 0 if redirected else self.live

    @cached_property
    def backward_edges(self) -> Edges:
        """Out-edges of every row along which gradients come back."""
        indptr, indices, weight = self.planner.transpose
        if self.exact:
            return Edges(indptr, indices, weight)
        relation = "together" if self.planner.policy.gamma == 0.0 else "not_before"
        position = self.position
        if not self.planner.policy.compensate:
            position = position.masked_fill(position == len(self.slots), -1)
        return Edges(*keep_edges(indptr, indices, self.planner.chunked.chunk_of, position, relation, weight))

    @cached_property
    def places(self) -> dict[Chunk, int]:
        """The first row of each of the step's chunks, where these are stored one after the other."""
        chunks = [chunk for slot in self.slots for chunk in slot]
        starts = accumulate((chunk.num_rows for chunk in chunks), initial=0)
        return dict(zip(chunks, starts, strict=False))

    @cached_property
    def packed_edges(self) -> Edges:
        """`backward_edges` with columns counted as `places` counts rows."""
        edges, chunk_of = self.backward_edges, self.planner.chunked.chunk_of
        shift = torch.zeros(self.position.shape, dtype=edges.indices.dtype)
        for chunk, start in self.places.items():
            shift[chunk.index] = start - chunk.start
        moved = shift.to(chunk_of.device)[chunk_of[edges.indices.long()].long()]
        return Edges(edges.indptr, edges.indices + moved, edges.weight)

    @property
    def carried_factor(self) -> float:
        """What a chunk's aggregation gradient is multiplied by before earlier slots read it."""
        gamma = self.planner.policy.gamma
        return 1.0 if self.exact or gamma == 0.0 else gamma

    def columns(self, chunk: Chunk) -> Columns:
        """What a chunk reads column by column, for operators that look at single edges; layers share it."""
        if chunk not in self._columns:
            self._columns[chunk] = self._make_columns(chunk)
        return self._columns[chunk]

    @cached_property
    def _columns(self) -> dict[Chunk, Columns]:
        return {}

    def _block(self, chunk: Chunk) -> tuple[Block, Tensor]:
        if self.exact or self.planner.policy.mode != "drop":
            return self.planner.block(chunk)
        indptr, indices, edge = self._kept
        return make_block(self.planner.chunked, chunk, indptr, indices, edge)

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The edges left by `drop`, and their positions in the graph."""
        graph = self.planner.chunked.graph
        number = torch.arange(graph.num_edges, device=graph.indices.device)
        order = (self.planner.chunked.chunk_of, self.position)
        return keep_edges(graph.indptr, graph.indices, *order, "not_after", number)

    def _make_columns(self, chunk: Chunk) -> Columns:
        block, vertices = self._block(chunk)
        if self.exact:
            rows, factor = vertices + self.live, torch.ones(vertices.numel(), device=vertices.device)
        else:
            there = self.position[self.planner.chunked.chunk_of[vertices].long()]
            here = self.position[chunk.index]
            rows = vertices + torch.where(there <= here, self.live, self.stale)
            factor = (there == here).double() + self.planner.policy.gamma * (there < here).double()
        return Columns(block, vertices, rows, factor)
