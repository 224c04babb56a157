"""Hanayo's waves."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._greedy import greedy
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "hanayo"]


def hanayo(num_stages: int, num_micro_batches: int, *, waves: int = 1) -> Schedule:
    """2SW stages laid over S ranks in zig-zag, so that a wave turns on one rank without a message.

    Two stages, two micro-batches, every action one unit of time::

        rank 0  0F0 0F1 .   3F0 3B0 3F1 3B1 0B0 .   0B1
        rank 1  .   1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 .

    Ranks take a backward before a forward, then the lowest micro-batch, then the latest stage. With
    M = S and tF = tB idle per rank is 2(S−1) chunk actions, bubble (S−1)/(2WS+S−1), without a second copy of
    the weights. For M > S the same rule keeps that idle time. Its peak has no published value.

    Args:
        num_stages: S, the ranks.
        waves: W; a rank holds 2W stages.

    Paper: Liu et al., *Hanayo* (SC 2023).
    """
    require("hanayo", (waves >= 1, f"waves: must be at least 1, got {waves}"))
    down = list(range(num_stages))
    placement = [[*down, *reversed(down)] * waves]
    orders = greedy(
        placement,
        [range(num_micro_batches)],
        lambda kind, stage, batch, _: (0, batch, -stage) if kind == Kind.B else (1, batch, -stage),
    )
    return assemble("hanayo", len(placement[0]), num_micro_batches, orders, placement=placement)


FAMILY = Family(
    hanayo,
    paper="Liu et al., SC 2023",
    summary="a zig-zag of 2W stages a rank, one copy of the weights: more waves, less bubble",
    example=(2, 2),
)
