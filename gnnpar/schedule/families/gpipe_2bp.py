"""2BP over GPipe."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "gpipe_2bp"]


def gpipe_2bp(num_stages: int, num_micro_batches: int) -> Schedule:
    """GPipe whose weight gradients wait until the end and run concatenated.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0   F1   F2   F3   .    .    .    .    I3   I2   I1   I0   W0-3 -    -    -
        rank 1  .    F0   F1   F2   F3   .    .    I3   I2   I1   I0   W0-3 -    -    -    .
        rank 2  .    .    F0   F1   F2   F3   I3   I2   I1   I0   W0-3 -    -    -    .    .

    For M = N and tF = tI = tW the bubble is 2(N−1)/(2(N−1)+3N). Its peak, M, has no published value.

    Paper: Rae, Lee, Richings, *2BP: 2-Stage Backpropagation* (2024).
    """
    batches = tuple(range(num_micro_batches))
    orders: list[list[Item]] = [
        [
            *(Action(Kind.F, stage, (batch,)) for batch in batches),
            *(Action(Kind.I, stage, (batch,)) for batch in reversed(batches)),
            Action(Kind.W, stage, batches),
        ]
        for stage in range(num_stages)
    ]
    return assemble("gpipe_2bp", num_stages, num_micro_batches, orders)


FAMILY = Family(
    gpipe_2bp,
    paper="Rae, Lee, Richings, 2024",
    summary="GPipe with concatenated weight gradients at the end; chunks may accumulate gradients",
)
