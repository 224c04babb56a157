"""Interleaved 1F1B."""

from __future__ import annotations

from itertools import chain

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "interleaved"]


def interleaved(num_stages: int, num_micro_batches: int, *, chunks: int = 2) -> Schedule:
    """1F1B in which each rank holds every S-th of v·S stages, and micro-batches go round in groups of S.

    TIMETABLE

    A rank warms up with (v−1)S + 2(S−1−r) chunk forwards. Idle per rank (S−1)(tF+tB) of one chunk, so 1/v of
    1F1B's; peak (v−1)S + 2(S−1−r) + 1 chunk activations (at most vM); v times the messages.

    Args:
        num_stages: S, the ranks. M must be a multiple of S, or at most S.
        chunks: v, stages a rank.

    Paper: Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*
    (SC 2021), §2.2.
    """
    group = min(num_stages, num_micro_batches)
    require(
        "interleaved",
        (chunks >= 1, f"chunks: must be at least 1, got {chunks}"),
        (
            num_micro_batches % group == 0,
            f"micro_batches: must be a multiple of stages={num_stages} (or below it), got {num_micro_batches}; "
            f"use {num_micro_batches // group * group}",
        ),
    )
    work = num_micro_batches * chunks
    orders = []
    for rank in range(num_stages):
        # The n-th forward: group n ÷ (group·v), in it chunk after chunk, in each the group's micro-batches.
        places = [(n // group % chunks, n // (group * chunks) * group + n % group) for n in range(work)]
        forwards = [code(Kind.F, chunk * num_stages + rank, batch) for chunk, batch in places]
        backwards = [code(Kind.B, (chunks - 1 - chunk) * num_stages + rank, batch) for chunk, batch in places]
        warm = min((chunks - 1) * group + 2 * (num_stages - 1 - rank), work)
        steady = chain.from_iterable(zip(forwards[warm:], backwards[: work - warm], strict=True))
        orders.append([*forwards[:warm], *steady, *backwards[work - warm :]])
    total = num_stages * chunks
    placement = [[stage % num_stages for stage in range(total)]]
    return assemble("interleaved", total, num_micro_batches, orders, placement=placement)


FAMILY = Family(
    interleaved,
    paper="Narayanan et al., SC 2021",
    summary="1F1B over v stages a rank: a v-th of the bubble, v times the messages",
    example=(2, 4),
)
