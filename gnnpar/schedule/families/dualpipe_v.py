"""DualPipeV."""

from __future__ import annotations

from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._dual import eight_steps
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "dualpipe_v"]


def dualpipe_v(num_stages: int, num_micro_batches: int) -> Schedule:
    """DualPipe cut in half: one copy of 2p stages in a V over p = S ranks.

    Two stages, four micro-batches, every action one unit of time::

        rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3
        rank 1  .   1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3

    Where tF = tI = tW and pairs run one after the other, p−1 slots idle per rank; 2p+1 half-size chunks in
    flight.

    Args:
        num_stages: p, the ranks. num_micro_batches: at least 2p.

    Paper: DeepSeek-AI, *DualPipe* (2025), the "cut-in-half" variant proposed by Sea AI Lab.
    """
    require(
        "dualpipe_v",
        (
            num_micro_batches >= 2 * num_stages,
            f"micro_batches: must be at least {2 * num_stages}, got {num_micro_batches}",
        ),
    )
    batches = range(num_micro_batches)
    orders = [
        eight_steps(
            num_stages,
            rank,
            num_micro_batches,
            ((rank, 0, batches), (2 * num_stages - 1 - rank, 0, batches)),
        )
        for rank in range(num_stages)
    ]
    placement = [[*range(num_stages), *reversed(range(num_stages))]]
    return assemble("dualpipe_v", 2 * num_stages, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    dualpipe_v,
    paper="DeepSeek-AI, 2025",
    summary="DualPipe on half the ranks: a V of two stages a rank, one copy of the weights",
    example=(2, 4),
)
