"""Looped breadth-first."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "looped_bfs"]


def looped_bfs(num_stages: int, num_micro_batches: int, *, chunks: int = 2) -> Schedule:
    """Ranks hold every S-th of v·S stages, and run all micro-batches through one stage before the next.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 .   .   .   .   3B3 3B2 3B1 3B0 0B3 0B2 0B1 0B0
        rank 1  .   1F0 1F1 1F2 1F3 4F0 4F1 4F2 4F3 .   .   4B3 4B2 4B1 4B0 1B3 1B2 1B1 1B0 .
        rank 2  .   .   2F0 2F1 2F2 2F3 5F0 5F1 5F2 5F3 5B3 5B2 5B1 5B0 2B3 2B2 2B1 2B0 .   .

    Where M ≥ S idle per rank (S−1)(tF+tB) of one chunk, so 1/v of GPipe's; all v·M chunk activations in
    flight. Backwards run in reverse, so that vertex chunks may accumulate gradients.

    Args:
        num_stages: S, the ranks.
        chunks: v, stages a rank.

    Paper: Lamy-Poirier, *Breadth-First Pipeline Parallelism* (MLSys 2023).
    """
    require("looped_bfs", (chunks >= 1, f"chunks: must be at least 1, got {chunks}"))
    total = num_stages * chunks
    batches = range(num_micro_batches)
    orders = []
    for rank in range(num_stages):
        stages = range(rank, total, num_stages)
        order = [code(Kind.F, stage, batch) for stage in stages for batch in batches]
        order += [code(Kind.B, stage, batch) for stage in reversed(stages) for batch in reversed(batches)]
        orders.append(order)
    placement = [[stage % num_stages for stage in range(total)]]
    return assemble("looped_bfs", total, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    looped_bfs,
    paper="Lamy-Poirier, MLSys 2023",
    summary="GPipe over v stages a rank: a v-th of the bubble, v times the messages",
)
