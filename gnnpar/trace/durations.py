"""Other durations for the work of a step: as if all micro-batches, or all ranks, were alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gnnpar.trace.timeline import Op, Step

__all__ = ["Work", "alike", "balanced", "even_chunks"]


class Work:
    """What the actions of a step cost one rank: their work only, without waits inside.

    Attributes:
        actions: (seconds, pieces) of every action, by identity of its event.
        of_kind: mean seconds of the actions of a kind. of_stage: of a kind and a stage.
        outside: seconds of work that no computing action contains.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self.actions: dict[int, tuple[float, int]] = {}
        self.outside = 0.0
        of_kind: defaultdict[str, list[int]] = defaultdict(list)
        of_stage: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for op in ops:
            if op.what != "work":
                continue
            if op.action is None:
                self.outside += op.seconds
                continue
            key = id(op.action)
            if key not in self.actions:
                of_kind[op.action.kind].append(key)
                of_stage[op.action.kind, op.action.stage].append(key)
            seconds, pieces = self.actions.get(key, (0.0, 0))
            self.actions[key] = seconds + op.seconds, pieces + 1
        self.of_kind: Mapping[str, float] = {kind: self._mean(keys) for kind, keys in of_kind.items()}
        self.of_stage = {where: self._mean(keys) for where, keys in of_stage.items()}

    def _mean(self, keys: Sequence[int]) -> float:
        return sum(self.actions[key][0] for key in keys) / len(keys)


def even_chunks(step: Step, works: Sequence[Work]) -> Callable[[int, int], float]:
    """Durations where every action takes the mean of its kind and stage on its rank."""

    def duration(rank: int, place: int) -> float:
        op = step.ranks[rank][place]
        if op.action is None:
            return op.seconds
        mean = works[rank].of_stage[op.action.kind, op.action.stage]
        return op.seconds * mean / (works[rank].actions[id(op.action)][0] or 1.0)

    return duration


def alike(step: Step, works: Sequence[Work], model: Work) -> Callable[[int, int], float]:
    """Durations where all ranks work as one of them does on average: every piece of an action takes its share
    of the mean of the kind."""
    return _given(step, works, model.of_kind, model.outside)


def balanced(step: Step, works: Sequence[Work]) -> Callable[[int, int], float]:
    """Durations where the work is the same in all, and the same on every rank and in every micro-batch."""
    count = max(1, len(works))
    kinds = {kind for work in works for kind in work.of_kind}
    means = {kind: sum(work.of_kind.get(kind, 0.0) for work in works) / count for kind in kinds}
    return _given(step, works, means, sum(work.outside for work in works) / count)


def _given(
    step: Step, works: Sequence[Work], of_kind: Mapping[str, float], outside: float
) -> Callable[[int, int], float]:
    def duration(rank: int, place: int) -> float:
        op, own = step.ranks[rank][place], works[rank]
        if op.action is None:
            return op.seconds * outside / (own.outside or 1.0)
        kind = op.action.kind
        return of_kind.get(kind, own.of_kind[kind]) / own.actions[id(op.action)][1]

    return duration
