"""`Feed`: what every step of a run trains on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from gnnpar.batch import ChunkedGraph, slot_order
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Mesh
from gnnpar.history import HistoryPolicy, Reads, ReadsPlanner
from gnnpar.schedule import Schedule, owners
from gnnpar.train.sampled_feed import SampledFeed

__all__ = ["ChunkFeed", "Feed"]


@dataclass(frozen=True)
class ChunkFeed:
    """Chunks or clusters of one graph: all of them in every epoch, in an order drawn anew, in equal shares a
    step.

    Attributes:
        chunked: the whole graph, renumbered chunk by chunk.
        copies: of every cut (see `ReadsPlanner`).
        chunk_dependent: whether the model looks across the rows that run together.
    """

    config: RunConfig
    mesh: Mesh
    schedule: Schedule
    chunked: ChunkedGraph
    copies: int
    chunk_dependent: bool

    @cached_property
    def policy(self) -> HistoryPolicy:
        return HistoryPolicy.of(self.config)

    def order(self, step: int) -> tuple[int, ...]:
        """The chunks of a step, slot after slot."""
        batch, (epoch, part, parts) = self.config.batch, self.policy.epoch(step)
        slots = batch.num_chunks // batch.joined
        order = slot_order(
            slots, self.mesh.slot_size, self.config.seed, epoch, shuffle=batch.shuffle, joined=batch.joined
        )
        size = len(order) // parts
        return order[part * size : (part + 1) * size]

    def ends_epoch(self, step: int) -> bool:
        """Whether all chunks have run when this step has."""
        _, part, parts = self.policy.epoch(step)
        return part == parts - 1

    def reads(self, step: int) -> Reads:
        """Who reads what in a step; asked for step after step."""
        reads = self._planner.plan(step, self.order(step))
        return reads if reads.exact else replace(reads, num_updates=self.schedule.num_updates)

    def refresh(self, step: int) -> Reads | None:
        """Who reads what in the refresh that comes before a step, if one does."""
        batch = self.config.batch
        always_exact = self.policy.steps_per_epoch == 1 and batch.num_chunks == batch.joined
        if always_exact or not self.policy.refreshes(step):
            return None
        return self._planner.refresh(step)

    def close(self) -> None:
        """Nothing is under way between steps."""

    @property
    def ran_in(self) -> Tensor:
        """`[C]`, the step in which each chunk last ran."""
        return self._planner.ran_in

    def history_offset(self, step: int) -> int:
        """In a cut's buffer, of the copy that `step` reads as history."""
        return self._planner.history_offset(step)

    @property
    def trained(self) -> ChunkedGraph:
        """The graph that training sees: for clusters, without the edges between them."""
        return self.chunked.isolated if self.config.batch.kind == "clusters" else self.chunked

    @property
    def dealt(self) -> bool:
        """Whether replicas run different chunks of one graph; clusters have nothing to read of each other."""
        return self.schedule.num_replicas > 1 and not self.config.batch.independent

    @cached_property
    def whole(self) -> Reads:
        """All chunks together over all edges: evaluation."""
        if self.trained is self.chunked:  # the blocks are the same
            return self._planner.exact
        return ReadsPlanner(self.chunked, self.policy, 1, self.chunk_dependent).exact

    @cached_property
    def _planner(self) -> ReadsPlanner:
        return ReadsPlanner(
            self.trained,
            self.policy,
            self.copies,
            self.chunk_dependent,
            self.mesh.slot_size * self.config.batch.joined,
            tuple(owners(self.schedule)) if self.dealt else (),
        )


Feed = ChunkFeed | SampledFeed
"""Where a trainer gets its steps from."""
