"""How interleaved families deal micro-batches over the stages of a rank."""

from __future__ import annotations

from gnnpar.schedule.families._assemble import require

__all__ = ["deal", "group_size"]


def group_size(name: str, num_ranks: int, num_micro_batches: int, chunks: int) -> int:
    """Micro-batches that go through one stage of a rank before its next: at least S where M ≥ S.

    Raises:
        InputError: M cannot be dealt into ⌊M ÷ S⌋ equal groups.
    """
    rounds = max(1, num_micro_batches // num_ranks)
    require(
        name,
        (chunks >= 1, f"chunks: must be at least 1, got {chunks}"),
        (
            num_micro_batches % rounds == 0,
            f"micro_batches: {num_micro_batches} do not deal into {rounds} groups of at least {num_ranks}; "
            f"use {num_micro_batches // num_ranks * num_ranks}",
        ),
    )
    return num_micro_batches // rounds


def deal(group: int, num_micro_batches: int, chunks: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) in order: group after group, in it chunk after chunk."""
    return [
        (chunk, first + place)
        for first in range(0, num_micro_batches, group)
        for chunk in range(chunks)
        for place in range(group)
    ]
