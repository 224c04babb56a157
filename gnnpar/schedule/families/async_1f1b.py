"""1F1B that goes on through its updates, without a flush: the order of all asynchronous pipelines."""

from __future__ import annotations

from array import array

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families.one_f_one_b import one_f_one_b
from gnnpar.schedule.program import KIND_AT, KIND_MASK, Program, code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "async_1f1b"]


def async_1f1b(num_stages: int, num_micro_batches: int, *, updates: int = 1, flush: bool = False) -> Schedule:
    """The order of 1F1B over the micro-batches of several updates; a stage updates as soon as it can.

    Three stages, four micro-batches; with U = 4, every backward is followed by an update, which takes no time
    here::

        rank 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    Stage s makes S−1−s updates between the forward and the backward of a micro-batch (with one micro-batch an
    update), so what these two read is a question of its own: see ``gnnpar.runtime.weights``. Nothing waits
    between updates: idle is (S−1)(tF+tB) per rank for the whole program, none of it in its steady state.

    Args:
        updates: U, which divides M; each takes M/U consecutive micro-batches.
        flush: finish an update before the next one starts: the same updates made one after the other.

    Papers: Narayanan et al., *PipeDream* (SOSP 2019, §3.2) and *PipeDream-2BW* (ICML 2021, §3); Guan et al.,
    *XPipe* (2019); Chen et al., *SpecTrain* (2018); Yang et al., *PipeMare* (MLSys 2021).
    """
    require(
        "async_1f1b",
        (
            updates >= 1 and num_micro_batches % max(updates, 1) == 0,
            f"updates: {updates} must divide the number of micro-batches, {num_micro_batches}",
        ),
    )
    size, ranks = num_micro_batches // updates, []
    together = size if flush else num_micro_batches
    for stage, program in enumerate(one_f_one_b(num_stages, together).ranks):
        step, ended, codes = code(Kind.STEP, stage), 0, array("q")
        for first in range(0, num_micro_batches, together):
            for value in program.codes[:-1]:
                codes.append(value + first)
                if value >> KIND_AT & KIND_MASK == Kind.B:
                    ended += 1
                    if ended % size == 0:
                        codes.append(step)
        ranks.append(Program(codes))
    return Schedule("async_1f1b", num_stages, num_micro_batches, tuple(ranks), num_updates=updates)


FAMILY = Family(
    async_1f1b,
    paper="Narayanan et al., SOSP 2019 (PipeDream)",
    summary="1F1B without a flush between updates; which weights a pass reads is a policy of its own",
)
