"""Interleaved 1F1B."""

from __future__ import annotations

from itertools import chain

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.families._rounds import deal, group_size
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "interleaved"]


def interleaved(num_stages: int, num_micro_batches: int, *, chunks: int = 2) -> Schedule:
    """1F1B in which each rank holds every S-th of v·S stages, and micro-batches go round in groups of S.

    Two stages, four micro-batches, every action one unit of time::

        rank 0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3 0B2 0B3
        rank 1  .   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 .

    A rank warms up with (v−1)S + 2(S−1−r) chunk forwards. Idle per rank (S−1)(tF+tB) of one chunk, so 1/v of
    1F1B's; peak (v−1)S + 2(S−1−r) + 1 chunk activations (at most vM); v times the messages.

    Args:
        num_stages: S, the ranks. M must be a multiple of S, or of M ÷ S rounded down.
        chunks: v, stages a rank.

    Paper: Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*
    (SC 2021), §2.2.
    """
    group = group_size("interleaved", num_stages, num_micro_batches, chunks)
    places = deal(group, num_micro_batches, chunks)
    orders = []
    for rank in range(num_stages):
        forwards = [code(Kind.F, chunk * num_stages + rank, batch) for chunk, batch in places]
        backwards = [code(Kind.B, (chunks - 1 - chunk) * num_stages + rank, batch) for chunk, batch in places]
        warm = min((chunks - 1) * group + 2 * (num_stages - 1 - rank), len(places))
        steady = chain.from_iterable(zip(forwards[warm:], backwards, strict=False))
        orders.append([*forwards[:warm], *steady, *backwards[len(places) - warm :]])
    total = num_stages * chunks
    placement = [[stage % num_stages for stage in range(total)]]
    return assemble("interleaved", total, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    interleaved,
    paper="Narayanan et al., SC 2021",
    summary="1F1B over v stages a rank: a v-th of the bubble, v times the messages",
    example=(2, 4),
)
