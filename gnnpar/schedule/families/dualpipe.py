"""DualPipe."""

from __future__ import annotations

from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._dual import eight_steps
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "dualpipe"]


def dualpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """Two copies of the stages in opposite directions, each forward overlapped with a backward of the other.

    Two stages, six micro-batches, every action one unit of time::

        rank 0  0F0   1F3@1 0F1   1B3@1 1F4@1 0B0   0F2   1B4@1 1F5@1 0B1   1B5@1 0I2   0W2
        rank 1  0F3@1 1F0   0F4@1 1B0   1F1   0B3@1 0F5@1 1B1   1F2   0B4@1 1B2   0I5@1 0W5@1

    Published bubble (D/2−1)(F&B + B − 3W), with F&B the time of an overlapped pair. Where tF = tI = tW and
    pairs run one after the other, D/2−1 slots idle per rank in simulation. D+1 activations in flight, twice
    the weights.

    Args:
        num_stages: D, even. num_micro_batches: even and at least 2D, half of them each way.

    Paper: DeepSeek-AI, *DeepSeek-V3 Technical Report* (2024), §3.2.1.
    """
    require(
        "dualpipe",
        (num_stages % 2 == 0, f"stages: must be even, got {num_stages}; use {num_stages + 1}"),
        (
            num_micro_batches % 2 == 0 and num_micro_batches >= 2 * num_stages,
            f"micro_batches: must be even and at least {2 * num_stages}, got {num_micro_batches}",
        ),
    )
    half, batches = num_stages // 2, num_micro_batches // 2
    down, up = range(batches), range(batches, num_micro_batches)
    orders = []
    for rank in range(num_stages):
        going, coming = (rank, 0, down), (num_stages - 1 - rank, 1, up)
        chunks = (going, coming) if rank < half else (coming, going)
        place = min(rank, num_stages - 1 - rank)
        orders.append(eight_steps(half, place, batches, chunks))
    ranks = list(range(num_stages))
    return assemble("dualpipe", num_stages, num_micro_batches, orders, placement=[ranks, ranks[::-1]])


FAMILY = Family(
    dualpipe,
    paper="DeepSeek-AI, 2024",
    summary="bidirectional, a forward overlapped with a backward of the other way; twice the weights",
    example=(2, 6),
)
