"""Where gradients are summed over the holders of a stage: a REDUCE right after its last backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.program import KIND_AT, KIND_MASK, decode
from gnnpar.schedule.schedule import Schedule

__all__ = ["insert_reductions", "reduced", "with_reductions"]

Held = tuple[int, int]
"""(replica, stage)."""


def with_reductions(schedule: Schedule, ranks: Collection[int]) -> Schedule:
    """The same schedule with all stages on these ranks reduced: ways that share a rank have gradients of
    their own parts of the micro-batches."""
    done = reduced(schedule)
    programs: list[Sequence[Item | int]] = []
    for rank, program in enumerate(schedule.ranks):
        wanted = [held for held in schedule.stages_on(rank) if rank in ranks and held not in done]
        programs.append(insert_reductions(program, wanted) if wanted else program)
    return schedule.with_ranks(programs)


def reduced(schedule: Schedule) -> frozenset[Held]:
    """The (replica, stage) pairs that have a REDUCE."""
    return frozenset(
        (part.replica, part.stage)
        for rank in schedule.ranks
        for value in rank.codes
        if value >> KIND_AT & KIND_MASK == Kind.REDUCE
        for part in decode([value]).parts
    )


def insert_reductions(items: Sequence[Item | int], held: Collection[Held]) -> list[Item | int]:
    """One rank's program with a REDUCE after the last backward of each of these stages, to run beside what is
    left to compute; at the start for a stage that has no backward."""
    waiting = set(held)
    backwards: list[Item | int] = []
    for item in reversed(items):
        for part in decode([item]).parts if isinstance(item, int) else item.parts:
            if part.kind in (Kind.B, Kind.W) and (part.replica, part.stage) in waiting:
                waiting.remove((part.replica, part.stage))
                backwards.append(Action(Kind.REDUCE, part.stage, (), part.replica))
        backwards.append(item)
    early = [Action(Kind.REDUCE, stage, (), replica) for replica, stage in sorted(waiting)]
    return [*early, *reversed(backwards)]
