"""List scheduling: the order in which ranks would take ready actions, by a priority."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import islice

from gnnpar.schedule.action import Kind
from gnnpar.schedule.program import code

__all__ = ["greedy"]

# (kind, stage, micro-batch, replica) → what sorts first is taken first.
Priority = Callable[[Kind, int, int, int], tuple[int, ...]]


def greedy(
    placement: Sequence[Sequence[int]],
    micro_batches: Sequence[Sequence[int]],
    priority: Priority,
    *,
    forward: int = 1,
    backward: int = 1,
    window: int | None = None,
) -> list[list[int]]:
    """Orders the F and B of chains of stages: a free rank takes its ready action of first priority.

    Args:
        placement: ``placement[replica][stage]`` is a rank.
        micro_batches: those of each replica.
        forward, backward: durations the order is made for.
        window: micro-batches of a replica that may be between their first F and their last B at a time.

    Returns:
        The codes of each rank, in order. Cost: O(actions · log actions).
    """
    num_ranks = 1 + max(rank for row in placement for rank in row)
    orders: list[list[int]] = [[] for _ in range(num_ranks)]
    ready: list[list[tuple[tuple[int, ...], Kind, int, int, int]]] = [[] for _ in range(num_ranks)]
    busy = [False] * num_ranks
    ends: list[tuple[int, int, Kind, int, int, int]] = []

    def offer(kind: Kind, stage: int, batch: int, replica: int) -> None:
        entry = (priority(kind, stage, batch, replica), kind, stage, batch, replica)
        heapq.heappush(ready[placement[replica][stage]], entry)

    waiting = [iter(batches) for batches in micro_batches]
    for replica, batches in enumerate(waiting):
        for batch in islice(batches, window):
            offer(Kind.F, 0, batch, replica)
    now = 0
    while True:
        for rank in range(num_ranks):
            if ready[rank] and not busy[rank]:
                _, kind, stage, batch, replica = heapq.heappop(ready[rank])
                orders[rank].append(code(kind, stage, batch, replica))
                length = forward if kind == Kind.F else backward
                heapq.heappush(ends, (now + length, rank, kind, stage, batch, replica))
                busy[rank] = True
        if not ends:
            return orders
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, rank, kind, stage, batch, replica = heapq.heappop(ends)
            busy[rank] = False
            last = len(placement[replica]) - 1
            if kind == Kind.F:
                offer(*((Kind.B, stage) if stage == last else (Kind.F, stage + 1)), batch, replica)
            elif stage > 0:
                offer(Kind.B, stage - 1, batch, replica)
            else:
                for more in islice(waiting[replica], 1):
                    offer(Kind.F, 0, more, replica)
