"""BaPipe's FBP-AS."""

from __future__ import annotations

from gnnpar.schedule.action import Action, Compound, Item, Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "bapipe_fbp_as"]


def bapipe_fbp_as(num_stages: int, num_micro_batches: int) -> Schedule:
    """A forward and a backward at a time, sharing the device, after twice the warm-up of 1F1B.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 F3 .  .  B0 .  B1 .  B2 B3
        rank 1  .  F0 F1 F2 F3 B0 .  B1 .  B2 B3 .
        rank 2  .  .  F0 F1 B0 F2 B1 F3 B2 B3 .  .

    T = (M+N−1)(F+B) when the two share the device's speed (``overlap=serial``), 2(N−i+1) micro-batches in
    flight on device i = 1 … N, messages of 2a in F+B time. Paper: Zhao et al., *BaPipe* (2020).
    """
    orders: list[list[Item]] = []
    for stage in range(num_stages):
        forwards = [Action(Kind.F, stage, (batch,)) for batch in range(num_micro_batches)]
        backwards = [Action(Kind.B, stage, (batch,)) for batch in range(num_micro_batches)]
        warm = min(2 * (num_stages - stage) - 1, num_micro_batches)
        steady = num_micro_batches - warm
        pairs = [Compound(pair) for pair in zip(forwards[warm:], backwards[:steady], strict=True)]
        orders.append([*forwards[:warm], *pairs, *backwards[steady:]])
    return assemble("bapipe_fbp_as", num_stages, num_micro_batches, orders)


FAMILY = Family(
    bapipe_fbp_as,
    paper="Zhao et al., 2020",
    summary="forward and backward share the device at the same time; twice the activations",
)
