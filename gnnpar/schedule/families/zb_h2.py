"""ZB-H2."""

from __future__ import annotations

from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._zero_bubble import split_order
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "zb_h2"]


def zb_h2(num_stages: int, num_micro_batches: int) -> Schedule:
    """ZB-H1 with twice the warm-up, which leaves no idle time inside a rank's own window.

    Three stages, five micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 .  .
        rank 1  .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4 .
        rank 2  .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4

    Warm-up 2(p−s)−1 forwards; stage s lets 2s weight gradients wait. Idle between the first and the last
    action of rank 0 max(0, (p−1)(tF+tI−2tW)) where M ≥ 2p−1 (ranks start one after the other, so the
    makespan keeps that skew); peak 2p−1 micro-batches in flight on every stage (at most M).

    Paper: Qi et al., *Zero Bubble Pipeline Parallelism* (ICLR 2024), §2.
    """
    orders = []
    for stage in range(num_stages):
        places = [(stage, batch) for batch in range(num_micro_batches)]
        orders.append(split_order(places, places, 2 * (num_stages - stage) - 1, 2 * stage))
    return assemble("zb_h2", num_stages, num_micro_batches, orders)


FAMILY = Family(
    zb_h2,
    paper="Qi et al., ICLR 2024",
    summary="no bubble inside a rank's window, for twice 1F1B's activations",
    example=(3, 5),
)
