"""BitPipe."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._greedy import greedy
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "bitpipe"]


def bitpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """Two V-shaped interleaved pipelines in opposite directions over D = S ranks, with eager reduction.

    Four stages, four micro-batches, every action one unit of time::

        rank 0  0F0   0F2   .     3F1@1 4F1@1 3F3@1 4F3@1 7F0   7B0   7F2   7B2   4B1@1 3B1@1 4B3@1 3B3@1
        rank 1  .     1F0   2F1@1 1F2   2F3@1 5F1@1 6F0   5F3@1 6F2   6B0   5B1@1 6B2   5B3@1 2B1@1 1B0
        rank 2  .     1F1@1 2F0   1F3@1 2F2   5F0   6F1@1 5F2   6F3@1 6B1@1 5B0   6B3@1 5B2   2B0   1B1@1
        rank 3  0F1@1 0F3@1 .     3F0   4F0   3F2   4F2   7F1@1 7B1@1 7F3@1 7B3@1 4B0   3B0   4B2   3B2

        rank 0  0B0   .     0B2
        rank 1  2B3@1 1B2   .
        rank 2  2B2   1B3@1 .
        rank 3  0B1@1 .     0B3@1

    2D stages; a rank holds two of each direction, and the V turns on one rank without a message. Even
    micro-batches go down, odd ones up, at most D/2 of each in flight; a rank takes a backward first, then the
    lowest micro-batch, then the latest stage. For M = D that has the times, the peaks and the backward order
    of the authors' code (which breaks ties of forwards differently): bubble (D−2)/(4M+D−2) where tB = tF and
    (D−2)/(3M+D−2) where tB = 2tF; peak 3D/2 + 1 (end ranks) to 2D (middle) half-size chunks; twice the
    weights. For tB = tF every M keeps D−2 idle slots. A stage is reduced between ranks d and D−1−d as soon as
    it is complete, the first ones while the last backwards still run.

    Args:
        num_stages: D, even. num_micro_batches: even (the authors' code: a multiple of D).

    Paper: Wu, Chen, Yu, *BitPipe* (2024).
    """
    require(
        "bitpipe",
        (num_stages % 2 == 0, f"stages: must be even, got {num_stages}; use {num_stages + 1}"),
        (num_micro_batches % 2 == 0, f"micro_batches: must be even, got {num_micro_batches}"),
    )
    ranks = list(range(num_stages))
    placement = [[*ranks, *reversed(ranks)], [*reversed(ranks), *ranks]]
    orders = greedy(
        placement,
        [range(0, num_micro_batches, 2), range(1, num_micro_batches, 2)],
        lambda kind, stage, batch, _: (int(kind == Kind.F), batch // 2, -stage),
        window=num_stages // 2,
    )
    return assemble("bitpipe", 2 * num_stages, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    bitpipe,
    paper="Wu, Chen, Yu, 2024",
    summary="two V-shaped pipelines in opposite directions: a quarter of 1F1B's bubble for twice the weights",
    example=(4, 4),
)
