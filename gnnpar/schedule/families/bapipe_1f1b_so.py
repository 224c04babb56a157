"""BaPipe's 1F1B-SO."""

from __future__ import annotations

from dataclasses import replace

from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families.one_f_one_b import one_f_one_b
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "bapipe_1f1b_so"]


def bapipe_1f1b_so(num_stages: int, num_micro_batches: int) -> Schedule:
    """1F1B with twice the warm-up, so that messages of a steady step overlap computation.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 F3 .  .  B0 .  B1 .  B2 B3
        rank 1  .  F0 F1 F2 F3 B0 .  B1 .  B2 B3 .
        rank 2  .  .  F0 F1 B0 F2 B1 F3 B2 B3 .  .

    T = (M+N−1)(F+B) + (N−1)·2SR with SR the time of a message, 2(N−i+1) micro-batches in flight on device
    i = 1 … N. Paper: Zhao et al., *BaPipe* (2020).
    """
    advance = [num_stages - stage for stage in range(num_stages)]
    return replace(one_f_one_b(num_stages, num_micro_batches, advance=advance), name="bapipe_1f1b_so")


FAMILY = Family(
    bapipe_1f1b_so,
    paper="Zhao et al., 2020",
    summary="1F1B with twice the warm-up, messages behind computation",
)
