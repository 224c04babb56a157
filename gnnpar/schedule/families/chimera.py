"""Chimera's bidirectional pipelines."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._greedy import greedy
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "chimera"]


def chimera(num_stages: int, num_micro_batches: int) -> Schedule:
    """Two copies of the stages in opposite directions over the same D = S ranks, half the micro-batches each.

    Four stages, four micro-batches, every action one unit of time::

        rank 0  0F0   0F1   .     3F2@1 3B2@1 3F3@1 3B3@1 0B0   .     0B1
        rank 1  .     1F0   2F2@1 1F1   2F3@1 2B2@1 1B0   2B3@1 1B1   .
        rank 2  .     1F2@1 2F0   1F3@1 2F1   2B0   1B2@1 2B1   1B3@1 .
        rank 3  0F2@1 0F3@1 .     3F0   3B0   3F1   3B1   0B2@1 .     0B3@1

    Units of D micro-batches, D/2 each way and no more in flight, in greedy order: a backward first, then the
    lowest micro-batch, then the lowest stage. For M > D units are concatenated: the first forwards of one
    fill the idle end of the one before. Idle per rank D−2 slots where tB = tF, (k+1)(D−2)tF where
    tB = 2tF and M = kD (the paper's forward doubling for that case is not built); peak D/2 + 1 (end ranks) to
    D (middle). Gradients are reduced between ranks d and D−1−d, each stage as soon as it is complete.

    Args:
        num_stages: D, even. num_micro_batches: even; beyond D a multiple of D is not needed, the last unit is
            smaller.

    Paper: Li and Hoefler, *Chimera* (SC 2021), §3.
    """
    require(
        "chimera",
        (num_stages % 2 == 0, f"stages: must be even, got {num_stages}; use {num_stages + 1}"),
        (num_micro_batches % 2 == 0, f"micro_batches: must be even, got {num_micro_batches}"),
    )
    down = list(range(num_stages))
    placement = [down, down[::-1]]
    streams: list[list[int]] = [[], []]
    for first in range(0, num_micro_batches, num_stages):
        half = min(num_stages, num_micro_batches - first) // 2
        streams[0] += range(first, first + half)
        streams[1] += range(first + half, first + 2 * half)
    turn = {batch: place for stream in streams for place, batch in enumerate(stream)}
    orders = greedy(
        placement,
        streams,
        lambda kind, stage, batch, _: (int(kind == Kind.F), turn[batch], stage),
        window=max(num_stages // 2, 1),
    )
    return assemble("chimera", num_stages, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    chimera,
    paper="Li and Hoefler, SC 2021",
    summary="two pipelines in opposite directions: half of 1F1B's bubble at M = S, twice the weights",
    example=(4, 4),
)
