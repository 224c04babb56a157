"""ZB-H1."""

from __future__ import annotations

from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._rounds import deal, group_size
from gnnpar.schedule.families._zero_bubble import split_order
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "zb_h1"]


def zb_h1(num_stages: int, num_micro_batches: int, *, chunks: int = 1) -> Schedule:
    """1F1B with the backward split: weight gradients fill the drain, in 1F1B's memory.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
        rank 1  .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        rank 2  .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

    Warm-up p−s forwards; stage s lets s weight gradients wait. Idle per rank (p−1)(tF+tI−tW) where M ≥ p and
    tW ≤ tI; peak p micro-batches in flight on every stage (at most M).

    Args:
        chunks: v > 1 holds every S-th of v·S stages on a rank, dealt as in interleaved 1F1B.

    Paper: Qi et al., *Zero Bubble Pipeline Parallelism* (ICLR 2024), §2.
    """
    group = group_size("zb_h1", num_stages, num_micro_batches, chunks) if chunks > 1 else num_micro_batches
    places = deal(group, num_micro_batches, chunks)
    orders = []
    for rank in range(num_stages):
        forwards = [(chunk * num_stages + rank, batch) for chunk, batch in places]
        backwards = [((chunks - 1 - chunk) * num_stages + rank, batch) for chunk, batch in places]
        warm = (chunks - 1) * group + num_stages - rank
        orders.append(split_order(forwards, backwards, warm, rank))
    total = num_stages * chunks
    placement = [[stage % num_stages for stage in range(total)]]
    return assemble("zb_h1", total, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    zb_h1,
    paper="Qi et al., ICLR 2024",
    summary="1F1B with weight gradients in the drain: a third of the bubble in the same memory",
)
