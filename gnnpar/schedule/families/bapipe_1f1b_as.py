"""BaPipe's 1F1B-AS."""

from __future__ import annotations

from dataclasses import replace

from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families.one_f_one_b import one_f_one_b
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "bapipe_1f1b_as"]


def bapipe_1f1b_as(num_stages: int, num_micro_batches: int) -> Schedule:
    """1F1B on devices whose messages stream beside computation and cost no time.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    T = (M+N−1)(F+B), N−i+1 micro-batches in flight on device i = 1 … N. Paper: Zhao et al., *BaPipe*
    (2020).
    """
    return replace(one_f_one_b(num_stages, num_micro_batches), name="bapipe_1f1b_as")


FAMILY = Family(
    bapipe_1f1b_as, paper="Zhao et al., 2020", summary="1F1B with asynchronous messages that cost nothing"
)
