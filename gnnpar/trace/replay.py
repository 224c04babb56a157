"""`Replay`: a measured step run again with other durations: what if the network were free, stages equal …"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gnnpar.trace.timeline import Op, Step

__all__ = ["free", "Key", "Replay", "Result"]


class Key(NamedTuple):
    """Names a message of a step: the `number`-th with this tag from source to target; or the `number`-th
    collective (source and target -1)."""

    source: int
    target: int
    tag: int
    number: int


Durations = Callable[[int, int], float]
"""Seconds of a rank's work, given the rank and the place of the operation."""


def free(key: Key) -> float:
    """The delay of every message where the network takes no time."""
    return 0.0


_BLOCKED_S = 5e-5
"""A wait shorter than this found its message there."""


@dataclass(frozen=True)
class Result:
    """When every operation ran in a replay.

    Attributes:
        times: of every rank, (start, end) of each operation.
        cause: of a wait that was not over at once, the (rank, place) of the operation that ended it.
    """

    times: list[list[tuple[float, float]]]
    cause: dict[tuple[int, int], tuple[int, int]]

    @property
    def makespan(self) -> float:
        """From the first start to the last end."""
        used = [rank for rank in self.times if rank]
        if not used:
            return 0.0
        return max(rank[-1][1] for rank in used) - min(rank[0][0] for rank in used)


class Replay:
    """Runs the operations of a step again, each rank's in their order.

    Work takes as long as it is told to. A message has arrived `delay` after it was both sent and its receive
    posted (gloo moves it then); who waits for it goes on then, and so does who waits until its send is
    over. A collective is over `delay` after the last rank came. What was sent or posted outside the step
    is there from the start.

    Cost: O(operations) a run, about 2 µs each.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.keys = [self._keys(rank, ops) for rank, ops in enumerate(step.ranks)]
        self._known = {
            what: {
                key
                for ops, keys in self._pairs()
                for op, key in zip(ops, keys, strict=True)
                if op.what == what
            }
            for what in ("send", "post")
        }
        entered = Counter(key for keys in self.keys for key in keys if key is not None and key.source < 0)
        self._collective = {key for key, count in entered.items() if count == len(step.ranks)}
        self.starts = [ops[0].start if ops else 0.0 for ops in step.ranks]

    def run(
        self,
        duration: Durations,
        delay: Callable[[Key], float],
        starts: Sequence[float] | None = None,
    ) -> Result:
        """Run the step.

        Args:
            delay: of every message.
            starts: of every rank; None: as measured.
        """
        ranks = range(len(self.step.ranks))
        now = list(self.starts if starts is None else starts)
        times: list[list[tuple[float, float]]] = [[] for _ in ranks]
        done: dict[str, dict[Key, tuple[float, int, int]]] = {"send": {}, "post": {}}
        came: defaultdict[Key, dict[int, tuple[float, int]]] = defaultdict(dict)
        cause: dict[tuple[int, int], tuple[int, int]] = {}
        left = [rank for rank in ranks if self.step.ranks[rank]]
        forced = False
        while left:
            moved = False
            for rank in list(left):
                ops, keys, own = self.step.ranks[rank], self.keys[rank], times[rank]
                while len(own) < len(ops):
                    place = len(own)
                    op, key = ops[place], keys[place]
                    end = now[rank]
                    if op.what == "work":
                        end += duration(rank, place)
                    elif op.what != "wait":
                        assert key is not None
                        done[op.what][key] = end, rank, place
                    elif key is not None:
                        if key in self._collective:
                            came[key].setdefault(rank, (end, place))
                        ends = self._released(key, done, came, forced)
                        if ends is None:
                            break
                        forced = False
                        if ends and ends[0] + delay(key) > end:
                            end = ends[0] + delay(key)
                            cause[rank, place] = ends[1], ends[2]
                    own.append((now[rank], end))
                    now[rank], moved = end, True
                else:
                    left.remove(rank)
            # Ranks that wait for each other: the log was cut, or lacks a message. Let the first one pass.
            forced = not moved
        return Result(times, cause)

    def _released(
        self,
        key: Key,
        done: dict[str, dict[Key, tuple[float, int, int]]],
        came: dict[Key, dict[int, tuple[float, int]]],
        forced: bool,
    ) -> tuple[float, int, int] | tuple[()] | None:
        """When and by what a wait may end; () at once, None not yet."""
        if key in self._collective:
            if len(came[key]) < len(self.step.ranks):
                return () if forced else None
            return max((time, rank, place) for rank, (time, place) in came[key].items())
        found = []
        for what, known in self._known.items():
            if key in known:
                if key not in done[what]:
                    return () if forced else None
                found.append(done[what][key])
        return max(found, default=())

    def measured(self, rank: int, place: int) -> float:
        """`Durations` as they were."""
        return self.step.ranks[rank][place].seconds

    @cached_property
    def delays(self) -> dict[Key, float]:
        """What every message took that was waited for: from when it could go to when it was there."""
        ready = self.ready
        found: dict[Key, float] = {}
        for ops, keys in self._pairs():
            for op, key in zip(ops, keys, strict=True):
                if op.what == "wait" and key in ready and op.seconds > _BLOCKED_S and not op.event.sent:
                    delay = max(0.0, op.end - ready[key])
                    found[key] = min(delay, found.get(key, delay))
        return found

    @cached_property
    def ready(self) -> dict[Key, float]:
        """When every message was both sent and its receive posted, as measured; a collective: when the last
        rank came."""
        found: dict[Key, float] = {}
        for ops, keys in self._pairs():
            for op, key in zip(ops, keys, strict=True):
                if key is not None and (op.what != "wait" or key in self._collective):
                    found[key] = max(found.get(key, op.start), op.start)
        return found

    def network_s(self, rank: int) -> dict[str, float]:
        """Seconds of a rank's waits for messages that were on their way, by kind of message."""
        found: defaultdict[str, float] = defaultdict(float)
        for op, key in zip(self.step.ranks[rank], self.keys[rank], strict=True):
            if op.what == "wait":
                since = op.start if key is None else max(op.start, self.ready.get(key, op.start))
                found[op.event.text] += max(0.0, op.end - since)
        return dict(found)

    def waits(self, result: Result) -> list[float]:
        """Seconds that every rank waits in a replay."""
        return [
            sum(end - start for op, (start, end) in zip(ops, times, strict=True) if op.what == "wait")
            for ops, times in zip(self.step.ranks, result.times, strict=True)
        ]

    def _pairs(self) -> list[tuple[Sequence[Op], list[Key | None]]]:
        return list(zip(self.step.ranks, self.keys, strict=True))

    @staticmethod
    def _keys(rank: int, ops: Sequence[Op]) -> list[Key | None]:
        """The message of every operation; None for work."""
        counts: Counter[tuple[str, bool, int, int]] = Counter()
        keys: list[Key | None] = []
        for op in ops:
            if op.what == "work":
                keys.append(None)
                continue
            event = op.event
            of = op.what, event.sent, event.peer, event.tag
            if event.peer < 0:
                keys.append(Key(-1, -1, 0, counts[of]))
            else:
                ends = (rank, event.peer) if event.sent else (event.peer, rank)
                keys.append(Key(*ends, event.tag, counts[of]))
            counts[of] += 1
        return keys
