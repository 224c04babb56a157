"""All micro-batches as one, over the placement of another schedule."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.program import Program
from gnnpar.schedule.reductions import reduced
from gnnpar.schedule.schedule import Schedule

__all__ = ["whole"]


def whole(like: Schedule, backward: bool = True) -> Schedule:
    """One micro-batch through the stages of `like`, forward then backward: what an exact step runs.

    Stages stay on their ranks. Of several replicas the first one runs it; the others take part in the
    reductions, which `like` asks for, and so make the same update.

    Args:
        backward: False: forward only, what a refresh runs; nothing is updated.
    """
    wanted = reduced(like)
    ranks: list[Program] = []
    for rank in range(like.num_ranks):
        held = like.stages_on(rank)
        first = [stage for replica, stage in held if replica == 0]
        program: list[Item] = [Action(Kind.F, stage, (0,)) for stage in first]
        if not backward:
            ranks.append(Program(program))
            continue
        program += [Action(Kind.B, stage, (0,)) for stage in reversed(first)]
        reducing = sorted((one for one in held if one in wanted), key=lambda one: (-one[1], one[0]))
        program += [Action(Kind.REDUCE, stage, (), replica) for replica, stage in reducing]
        program += [Action(Kind.STEP, stage, (), replica) for replica, stage in held]
        ranks.append(Program(program))
    name = f"{like.name}, whole"
    return Schedule(
        name,
        like.num_stages,
        1,
        tuple(ranks),
        like.placement,
        like.stage_edges,
        detached=like.detached,
    )
