"""All micro-batches as one, over the placement of another schedule."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.program import Program
from gnnpar.schedule.schedule import Schedule

__all__ = ["whole"]


def whole(like: Schedule) -> Schedule:
    """One micro-batch through the stages of `like`, forward then backward: what an exact step runs.

    Stages stay on their ranks. Schedules with several replicas are not for dependent micro-batches, so only
    the first replica is used.
    """
    ranks: list[list[Item]] = []
    for rank in range(like.num_ranks):
        stages = [stage for replica, stage in like.stages_on(rank) if replica == 0]
        program: list[Item] = [Action(Kind.F, stage, (0,)) for stage in stages]
        program += [Action(Kind.B, stage, (0,)) for stage in reversed(stages)]
        program += [Action(Kind.STEP, stage) for stage in stages]
        ranks.append(program)
    return Schedule(
        f"{like.name}, whole",
        like.num_stages,
        1,
        tuple(map(Program, ranks)),
        (like.placement[0],),
        like.stage_edges,
    )
