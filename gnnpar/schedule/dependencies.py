"""What must come before an action: sets of predecessors, by what micro-batches read of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnpar.errors import InputError
from gnnpar.schedule.action import Action, Kind
from gnnpar.schedule.program import BATCH_MASK, KIND_AT, KIND_MASK, REPLICA_AT, REPLICA_MASK
from gnnpar.schedule.schedule import Schedule

__all__ = ["INDEPENDENT", "Dependencies", "dependencies_for", "owners", "predecessors"]

_BATCHES = ("graph", "chunk", "cluster", "neighbour", "layer", "walk")
_NEIGHBOURS = ("history", "drop", "exact")
_GRADIENTS = ("accumulate", "drop", "compensate")


@dataclass(frozen=True)
class Dependencies:
    """Dependencies between micro-batches, beyond the plain pipeline's ``F(s,m) ← F(p,m)``,
    ``B(s,m) ← F(s,m), B(n,m)`` and ``W(s,m) ← I(s,m)`` for predecessors p and successors n of s.

    Args:
        forward_in_order: ``F(s,c) ← F(s,c−1)``: a chunk reads the current rows of the chunks before it.
        backward_in_reverse: ``B(s,c) ← B(s,c+1)``: gradients accumulate into the chunks computed before.
        reads: for exact chunks, ``reads[c]`` are the chunks whose rows c reads (c itself included):
            ``F(s,c) ← F(p,d)`` for d in reads[c], and ``B(s,c) ← B(n,d)`` for every d that reads c.

    Chunks of another replica are read from history, so the order binds the chunks of one replica only.
    """

    forward_in_order: bool = False
    backward_in_reverse: bool = False
    reads: tuple[tuple[int, ...], ...] | None = None

    @property
    def readers(self) -> tuple[tuple[int, ...], ...] | None:
        """``readers[c]``: the chunks that read chunk c."""
        if self.reads is None:
            return None
        found: list[list[int]] = [[] for _ in self.reads]
        for reader, sources in enumerate(self.reads):
            for source in sources:
                found[source].append(reader)
        return tuple(map(tuple, found))


INDEPENDENT = Dependencies()


def dependencies_for(
    batch: str,
    neighbours: str = "drop",
    gradient: str = "drop",
    reads: Sequence[Sequence[int]] | None = None,
) -> Dependencies:
    """The dependencies that a choice on the batch, neighbour and gradient axes brings.

    Args:
        batch: what a micro-batch is: graph, chunk, cluster, neighbour, layer or walk. All but chunk are
            independent of each other.
        neighbours: rows outside the chunk: history, drop or exact.
        gradient: across micro-batches: accumulate, drop or compensate (from stored gradients).
        reads: with exact, the chunks each chunk reads.
    """
    for key, value, known in (
        ("batch", batch, _BATCHES),
        ("neighbours", neighbours, _NEIGHBOURS),
        ("gradient", gradient, _GRADIENTS),
    ):
        if value not in known:
            raise InputError("schedule", [f"{key}: '{value}' is not one of {', '.join(known)}"])
    if batch != "chunk" or neighbours == "drop":
        return INDEPENDENT
    if neighbours == "exact":
        if reads is None:
            raise InputError("schedule", ["neighbours: exact needs to know which chunks each chunk reads"])
        return Dependencies(reads=tuple(tuple(sorted({*row, c})) for c, row in enumerate(reads)))
    return Dependencies(forward_in_order=True, backward_in_reverse=gradient == "accumulate")


def owners(schedule: Schedule) -> list[int]:
    """The replica that runs each micro-batch; −1 where no forward names it."""
    if schedule.num_replicas == 1:
        return [0] * schedule.num_micro_batches
    owner = [-1] * schedule.num_micro_batches
    for rank in schedule.ranks:
        for value in rank.codes:
            batch = value & BATCH_MASK
            if value >> KIND_AT & KIND_MASK == Kind.F and batch < len(owner):
                owner[batch] = value >> REPLICA_AT & REPLICA_MASK
    return owner


def neighbours_in_replica(schedule: Schedule) -> tuple[list[int], list[int]]:
    """For each micro-batch, the one before and the one after it in its replica; −1 where there is none."""
    before, after = [-1] * schedule.num_micro_batches, [-1] * schedule.num_micro_batches
    last: dict[int, int] = {}
    for batch, owner in enumerate(owners(schedule)):
        if owner in last:
            before[batch], after[last[owner]] = last[owner], batch
        last[owner] = batch
    return before, after


def predecessors(
    schedule: Schedule, action: Action, dependencies: Dependencies = INDEPENDENT
) -> frozenset[Action]:
    """The compute actions that must end before ``action`` starts, each with one micro-batch.

    A backward in the answer has kind B; in a schedule that splits it, its I is meant. REDUCE and STEP
    follow the whole backward of their stage. Communication and W of another stage are not in the answer.
    """
    stage, replica = action.stage, action.replica
    found: set[Action] = set()

    def add(kind: Kind, stages: Sequence[int], batches: Sequence[int]) -> None:
        found.update(Action(kind, place, (batch,), replica) for place in stages for batch in batches)

    if action.kind in (Kind.REDUCE, Kind.STEP):
        add(Kind.B, (stage,), [batch for batch, owner in enumerate(owners(schedule)) if owner == replica])
        return frozenset(found)
    before, after = neighbours_in_replica(schedule)
    for batch in action.micro_batches:
        if action.kind == Kind.F:
            reads = (batch,) if dependencies.reads is None else dependencies.reads[batch]
            add(Kind.F, schedule.predecessors(stage), reads)
            if dependencies.forward_in_order and before[batch] >= 0:
                add(Kind.F, (stage,), (before[batch],))
        elif action.kind in (Kind.B, Kind.I):
            readers = dependencies.readers
            add(Kind.F, (stage,), (batch,))
            if not schedule.detached:
                add(Kind.B, schedule.successors(stage), (batch,) if readers is None else readers[batch])
            if dependencies.backward_in_reverse and after[batch] >= 0:
                add(Kind.B, (stage,), (after[batch],))
        elif action.kind == Kind.W:
            add(Kind.B, (stage,), (batch,))
        elif action.kind == Kind.SEND_F:
            add(Kind.F, (stage,), (batch,))
        elif action.kind == Kind.SEND_B:
            add(Kind.B, (stage,), (batch,))
    return frozenset(found)
