"""DAPPLE with warm-up policy PB."""

from __future__ import annotations

from dataclasses import replace

from gnnpar.schedule.families._assemble import require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families.one_f_one_b import one_f_one_b
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "dapple_pb"]


def dapple_pb(num_stages: int, num_micro_batches: int, *, memory: int | None = None) -> Schedule:
    """K_s = min(2(S−s)−1, D) forwards before the first backward, which hides the messages of a round trip.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 F3 .  B0 .  B1 .  B2 .  B3
        rank 1  .  F0 F1 F2 B0 F3 B1 .  B2 .  B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    Idle as in 1F1B where messages are free, peak min(2(S−s)−1, M).

    Args:
        memory: D, the micro-batches a stage has room for; default: no bound.

    PB is for activations that are dear to send against computation.

    Paper: Fan et al., *DAPPLE* (PPoPP 2021).
    """
    require("dapple_pb", (memory is None or memory >= 1, f"memory: must be at least 1, got {memory}"))
    bound = 2 * num_stages if memory is None else memory
    advance = [min(2 * (num_stages - stage) - 1, bound) - (num_stages - stage) for stage in range(num_stages)]
    return replace(one_f_one_b(num_stages, num_micro_batches, advance=advance), name="dapple_pb")


FAMILY = Family(
    dapple_pb,
    paper="Fan et al., PPoPP 2021",
    summary="1F1B with twice the warm-up, which hides messages behind computation",
)
