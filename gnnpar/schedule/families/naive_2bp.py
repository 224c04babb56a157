"""2BP over naive model parallelism."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "naive_2bp"]


def naive_2bp(num_stages: int, num_micro_batches: int) -> Schedule:
    """One micro-batch at a time; weight gradients wait until the end and run concatenated.

    Three stages, two micro-batches, every action one unit of time::

        rank 0  F0   .    .    .    .    I0   F1   .    .    .    .    I1   W0-1 -
        rank 1  .    F0   .    .    I0   .    .    F1   .    .    I1   W0-1 -    .
        rank 2  .    .    F0   I0   .    .    .    .    F1   I1   W0-1 -    .    .

    With one micro-batch and tF = tI = tW the bubble is 2(N−1)/(2N+1), against (N−1)/N without the split.
    Activations of all micro-batches are kept to the end. Its peak has no published value.

    Paper: Rae, Lee, Richings, *2BP: 2-Stage Backpropagation* (2024).
    """
    orders: list[list[Item]] = []
    batches = tuple(range(num_micro_batches))
    for stage in range(num_stages):
        order: list[Item] = [Action(kind, stage, (batch,)) for batch in batches for kind in (Kind.F, Kind.I)]
        orders.append([*order, Action(Kind.W, stage, batches)])
    return assemble("naive_2bp", num_stages, num_micro_batches, orders)


FAMILY = Family(
    naive_2bp,
    paper="Rae, Lee, Richings, 2024",
    summary="no pipelining, weight gradients of all ranks at once at the end",
    example=(3, 2),
)
