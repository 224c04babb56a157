"""1F1B with a flush, and its warm-ups: DAPPLE's PA and PB, BaPipe's doubled one, AvgPipe's advance."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import Program, code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "one_f_one_b"]


def one_f_one_b(num_stages: int, num_micro_batches: int, *, advance: int | Sequence[int] = 0) -> Schedule:
    """Warm-up of S−1−s forwards, then one forward and one backward in turn, then the last backwards.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    Idle per rank (S−1)(tF+tB) as in GPipe, peak min(S−s, M) micro-batches in flight.

    Args:
        advance: additional warm-up forwards, one number or one a stage (AvgPipe's advance forward
            propagation): 0 is 1F1B, S−1−s is DAPPLE's PB, M−(S−s) or more is GPipe with backwards in order.

    Papers: Narayanan et al., *PipeDream-2BW* (ICML 2021; PipeDream-Flush); Fan et al., *DAPPLE* (PPoPP 2021);
    Chen et al., *Elastic Averaging for Efficient Pipelined DNN Training* (AvgPipe, PPoPP 2023).
    """
    extra = [advance] * num_stages if isinstance(advance, int) else list(advance)
    require(
        "one_f_one_b", (len(extra) == num_stages, f"advance: {len(extra)} numbers for {num_stages} stages")
    )
    ranks = []
    for stage in range(max(num_stages, 0)):
        warm = min(num_stages - 1 - stage + extra[stage], num_micro_batches - 1)
        forward, backward = code(Kind.F, stage), code(Kind.B, stage)
        steady = num_micro_batches - warm
        codes = array("q", range(forward, forward + warm))
        pairs = array("q", bytes(16 * steady))
        pairs[0::2] = array("q", range(forward + warm, forward + num_micro_batches))
        pairs[1::2] = array("q", range(backward, backward + steady))
        codes += pairs
        codes.extend(range(backward + steady, backward + num_micro_batches))
        codes.append(code(Kind.STEP, stage))
        ranks.append(Program(codes))
    return Schedule("one_f_one_b", num_stages, num_micro_batches, tuple(ranks))


FAMILY = Family(
    one_f_one_b,
    paper="Narayanan et al., ICML 2021 (PipeDream-Flush)",
    summary="backwards start as early as they can; GPipe's time, at most S micro-batches in flight",
)
