"""Fill-drain (GPipe): every forward, then every backward."""

from __future__ import annotations

from array import array

from gnnpar.schedule.action import Kind
from gnnpar.schedule.program import Program, code
from gnnpar.schedule.schedule import Schedule

__all__ = ["fill_drain"]


def fill_drain(num_stages: int, num_micro_batches: int) -> Schedule:
    """All forwards in order, then all backwards in reverse order, then STEP.

    Three stages, four micro-batches, a backward as long as a forward::

        rank 0  F0 F1 F2 F3 .  .  .  .  B3 B2 B1 B0
        rank 1  .  F0 F1 F2 F3 .  .  B3 B2 B1 B0 .
        rank 2  .  .  F0 F1 F2 F3 B3 B2 B1 B0 .  .

    Idle per rank (S−1)(tF+tB), peak M micro-batches in flight. The reverse order is what lets vertex chunks
    accumulate gradients into the chunks computed before them. With recomputation (GPipe's own way) a backward
    costs tF more and only stage inputs are kept in flight: see ``Costs.recompute``.

    Paper: Huang et al., *GPipe* (NeurIPS 2019), §2.2.
    """
    ranks = []
    for stage in range(max(num_stages, 0)):
        forward, backward = code(Kind.F, stage), code(Kind.B, stage)
        codes = array("q", range(forward, forward + num_micro_batches))
        codes.extend(range(backward + num_micro_batches - 1, backward - 1, -1))
        codes.append(code(Kind.STEP, stage))
        ranks.append(Program(codes))
    return Schedule("gpipe", num_stages, num_micro_batches, tuple(ranks))
