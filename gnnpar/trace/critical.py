"""What a step's length hangs on: its critical path, and how long it would be if something were different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gnnpar.trace.attribution import CATEGORIES, category_of
from gnnpar.trace.durations import Work, balanced
from gnnpar.trace.replay import Key, Replay, free
from gnnpar.trace.timeline import Step

__all__ = ["PathPiece", "WhatIf", "critical_path", "path_by_category", "what_if"]


@dataclass(frozen=True)
class PathPiece:
    """A piece of the critical path: times as measured.

    Attributes:
        category: of `CATEGORIES`; the time of a message counts for the rank that received it.
        what: the action, or the kind of message.
    """

    rank: int
    start: float
    end: float
    category: str
    what: str


@dataclass(frozen=True)
class WhatIf:
    """Seconds of a step, from its first start to its last end.

    Attributes:
        replayed: with the durations and delays that were measured, to compare the others with.
        free_network: if messages took no time.
        balanced: if all stages and micro-batches cost the same, and as much in all.
    """

    measured: float
    replayed: float
    free_network: float
    balanced: float


def what_if(step: Step) -> WhatIf:
    """The step run again under other circumstances. Messages that nobody waited for count as arrived."""
    replay = Replay(step)
    starts = [ops[0].start for ops in step.ranks if ops]
    ends = [ops[-1].end for ops in step.ranks if ops]
    together = [min(starts, default=0.0)] * len(step.ranks)
    even = balanced(step, [Work(ops) for ops in step.ranks])

    def delay(key: Key) -> float:
        return replay.delays.get(key, 0.0)

    return WhatIf(
        measured=max(ends, default=0.0) - min(starts, default=0.0),
        replayed=replay.run(replay.measured, delay).makespan,
        free_network=replay.run(replay.measured, free).makespan,
        balanced=replay.run(even, delay, together).makespan,
    )


def critical_path(step: Step) -> list[PathPiece]:
    """The operations and messages that follow each other without a gap up to the step's end, in order.

    Making any of these longer makes the step longer; what is not among them has room. Found backwards: from a
    wait on to whatever ended it.
    """
    replay = Replay(step)
    result = replay.run(replay.measured, lambda key: replay.delays.get(key, 0.0))
    places = [(times[-1][1], rank, len(times) - 1) for rank, times in enumerate(result.times) if times]
    if not places:
        return []
    _, rank, place = max(places)
    found: list[PathPiece] = []
    while place >= 0:
        op = step.ranks[rank][place]
        start, end = result.times[rank][place]
        came_from = result.cause.get((rank, place))
        if came_from is None:
            if end > start:
                category = category_of(op)
                what = op.action.text if op.action else op.event.text or op.event.kind
                found.append(PathPiece(rank, start, end, _known(category), what))
            place -= 1
            continue
        there, at = came_from
        since = result.times[there][at][0]
        if end > since:
            found.append(PathPiece(rank, since, end, _known(f"communication {op.event.text}"), op.event.text))
        rank, place = there, at - 1
    return found[::-1]


def path_by_category(path: Sequence[PathPiece]) -> dict[str, float]:
    """Seconds on the path by category, the largest first."""
    totals: defaultdict[str, float] = defaultdict(float)
    for piece in path:
        totals[piece.category] += piece.end - piece.start
    return dict(sorted(totals.items(), key=lambda pair: -pair[1]))


def _known(category: str) -> str:
    if category in CATEGORIES:
        return category
    return "communication control" if category.startswith("communication") else "other"
