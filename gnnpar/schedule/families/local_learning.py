"""Local learning: every stage has a loss of its own, and no gradient crosses between stages."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import Program, code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "local_learning"]


def local_learning(num_stages: int, num_micro_batches: int, *, updates: int = 1) -> Schedule:
    """Forward, backward, next micro-batch; a stage waits for the one before it only.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 B0 F1 B1 F2 B2 F3 B3 .  .
        rank 1  .  F0 B0 F1 B1 F2 B2 F3 B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3

    The output of a forward leaves at once, before the backward and the update that follow. Idle per rank is
    (S−1) tF, once, however many micro-batches; one micro-batch in flight.

    Args:
        updates: U, which divides M; each takes M/U consecutive micro-batches. Every micro-batch goes through
            stage s with the weights of its own update, as in sequential local learning: the results are the
            same to the bit, however far stages run apart.

    Paper: Guo et al., *PPLL: Pipeline Parallelism based on Local Learning* (2024, §3). Their queues between
    stages are messages here, as deep as the stages run apart.
    """
    require(
        "local_learning",
        (
            updates >= 1 and num_micro_batches % max(updates, 1) == 0,
            f"updates: {updates} must divide the number of micro-batches, {num_micro_batches}",
        ),
    )
    size, ranks = num_micro_batches // max(updates, 1), []
    for stage in range(num_stages):
        codes = []
        for batch in range(num_micro_batches):
            codes += [code(Kind.F, stage, batch), code(Kind.B, stage, batch)]
            if (batch + 1) % size == 0:
                codes.append(code(Kind.STEP, stage))
        ranks.append(Program(codes))
    return Schedule(
        "local_learning", num_stages, num_micro_batches, tuple(ranks), num_updates=updates, detached=True
    )


FAMILY = Family(
    local_learning,
    paper="Guo et al., 2024 (PPLL)",
    summary="a loss for every stage, no gradient between stages: one bubble at the start, ever",
)
