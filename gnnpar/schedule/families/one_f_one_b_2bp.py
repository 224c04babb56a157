"""2BP over 1F1B."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "one_f_one_b_2bp"]


def one_f_one_b_2bp(num_stages: int, num_micro_batches: int) -> Schedule:
    """1F1B on input gradients; a weight gradient before each backward of the drain, the rest concatenated.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0   F1   F2   .    .    I0   F3   I1   W0   I2   W1   I3   W2-3 -
        rank 1  .    F0   F1   .    I0   F2   I1   F3   I2   W0   I3   W1-3 -    -
        rank 2  .    .    F0   I0   F1   I1   F2   I2   F3   I3   W0-3 -    -    -

    For tF = tI = tW the bubble is (N−1)/(4N−1) where M = N (1F1B-1) and (N−1)/(7N−1) where M = 2N (1F1B-2).
    Its peak has no published value.

    Paper: Rae, Lee, Richings, *2BP: 2-Stage Backpropagation* (2024).
    """
    orders: list[list[Item]] = []
    for stage in range(num_stages):
        warm = min(num_stages - 1 - stage, num_micro_batches - 1)
        order: list[Item] = [Action(Kind.F, stage, (batch,)) for batch in range(warm)]
        for batch in range(warm, num_micro_batches):
            order.append(Action(Kind.F, stage, (batch,)))
            order.append(Action(Kind.I, stage, (batch - warm,)))
        for number in range(warm):
            order.append(Action(Kind.W, stage, (number,)))
            order.append(Action(Kind.I, stage, (num_micro_batches - warm + number,)))
        order.append(Action(Kind.W, stage, tuple(range(warm, num_micro_batches))))
        orders.append(order)
    return assemble("one_f_one_b_2bp", num_stages, num_micro_batches, orders)


FAMILY = Family(
    one_f_one_b_2bp,
    paper="Rae, Lee, Richings, 2024",
    summary="1F1B with weight gradients in the drain and at the end; all activations kept",
)
