"""GEMS."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "gems"]


def gems(num_stages: int, num_micro_batches: int) -> Schedule:
    """Two copies of the stages in opposite directions, one micro-batch each way at a time: least memory.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  0F0   .     .     .     .     2F1@1 2B1@1 0B0   0F2   .     .     .     .     2F3@1 2B3@1
        rank 1  .     1F0   .     .     1F1@1 1B0   .     1B1@1 .     1F2   .     .     1F3@1 1B2   .
        rank 2  .     .     2F0   0F1@1 2B0   .     .     .     0B1@1 .     2F2   0F3@1 2B2   .     .

        rank 0  0B2   .
        rank 1  1B3@1 .
        rank 2  .     0B3@1

    The second micro-batch of a pair goes up from the last rank as soon as the first has come down to it; then
    both go back. At most two micro-batches are in flight on a rank, whatever D and M. Alone, a pair takes
    about 4D where tF = 1 and tB = 2, of which a rank works 6. (The published bubble, about (D−1)/(D+1/2), is
    that of 4D+2; here pairs also follow each other closely.)

    Args:
        num_stages: D. num_micro_batches: even.

    Paper: Jain et al., *GEMS* (SC 2020); the bubble is as Li and Hoefler, *Chimera* (SC 2021), give it.
    """
    require("gems", (num_micro_batches % 2 == 0, f"micro_batches: must be even, got {num_micro_batches}"))
    orders = []
    for rank in range(num_stages):
        away = num_stages - 1 - rank
        order = []
        for batch in range(0, num_micro_batches, 2):
            order += [code(Kind.F, rank, batch), code(Kind.F, away, batch + 1, 1)]
            back = [code(Kind.B, rank, batch), code(Kind.B, away, batch + 1, 1)]
            # The gradient that reaches this rank first: from the last rank at D+1, from the first at 2D.
            order += back if 4 * rank >= num_stages - 1 else back[::-1]
        orders.append(order)
    down = list(range(num_stages))
    return assemble("gems", num_stages, num_micro_batches, orders, placement=[down, down[::-1]])


FAMILY = Family(
    gems,
    paper="Jain et al., SC 2020",
    summary="two micro-batches in flight at most, in opposite directions; twice the weights",
    example=(3, 4),
)
