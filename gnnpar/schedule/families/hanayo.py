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

    TIMETABLE

    Ranks take a backward before a forward, then the lowest micro-batch, then the latest stage (backwards) or
    the latest one reached (forwards). With M = S and tF = tB idle per rank is 2(S−1) chunk actions, bubble
    (S−1)/(2WS+S−1), without a second copy of the weights. The paper gives no order for M > S; the same
    rule is used. Its peak has no published value.

    Args:
        num_stages: S, the ranks.
        waves: W; a rank holds 2W stages.

    Paper: Liu et al., *Hanayo* (SC 2023), §3.
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
    summary="a zig-zag of 2W stages a rank: Chimera's bubble without its second copy of the weights",
    example=(2, 2),
)
