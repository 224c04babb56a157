"""DAPPLE with warm-up policy PA."""

from __future__ import annotations

from dataclasses import replace

from gnnpar.schedule.families._assemble import require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families.one_f_one_b import one_f_one_b
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "dapple_pa"]


def dapple_pa(num_stages: int, num_micro_batches: int, *, memory: int | None = None) -> Schedule:
    """K_s = min(S−s, D) forwards before the first backward: 1F1B under a memory bound D.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    Args:
        memory: D, the micro-batches a stage has room for; default: no bound, which is 1F1B.

    PA is for activations that are cheap to send against computation.

    Paper: Fan et al., *DAPPLE* (PPoPP 2021).
    """
    require("dapple_pa", (memory is None or memory >= 1, f"memory: must be at least 1, got {memory}"))
    advance = [0 if memory is None else min(memory - num_stages + stage, 0) for stage in range(num_stages)]
    return replace(one_f_one_b(num_stages, num_micro_batches, advance=advance), name="dapple_pa")


FAMILY = Family(
    dapple_pa,
    paper="Fan et al., PPoPP 2021",
    summary="1F1B with as many warm-up forwards as stages below, or as memory allows",
)
