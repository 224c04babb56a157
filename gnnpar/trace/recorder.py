"""`Recorder`: what a rank did and when, and what it sent. A leaf: it imports nothing of gnnpar."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Event", "Recorder"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took time; `start`, `end` in seconds on the monotonic clock of the host."""

    kind: str
    what: str
    start: float
    end: float


class Recorder:
    """Counters and events of one rank. Costs about a microsecond a span.

    Args:
        keep_events: False keeps only the sums per kind.
    """

    def __init__(self, keep_events: bool = False) -> None:
        self.keep_events = keep_events
        self.events: list[Event] = []
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes_sent: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.messages_sent: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.rows_by_age: defaultdict[int, int] = defaultdict(int)

    @contextmanager
    def span(self, kind: str, what: str = "") -> Iterator[None]:
        """Add the time inside to `kind`. Spans of different kinds may nest; each counts its whole length."""
        start = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            self.seconds[kind] += end - start
            if self.keep_events:
                self.events.append(Event(kind, what, start, end))

    def count_bytes(self, kind: str, peer: int, count: int) -> None:
        """Count one message of `count` bytes to rank `peer`."""
        self.bytes_sent[kind, peer] += count
        self.messages_sent[kind, peer] += 1

    def count_rows(self, age: int, count: int) -> None:
        """Count `count` rows of other ways, read `age` steps after they were computed."""
        self.rows_by_age[age] += count

    def bytes_by_kind(self) -> dict[str, int]:
        totals: defaultdict[str, int] = defaultdict(int)
        for (kind, _), count in self.bytes_sent.items():
            totals[kind] += count
        return dict(totals)

    def reset(self) -> None:
        """Start a new epoch: forget all sums and events."""
        self.events = []
        self.seconds.clear()
        self.bytes_sent.clear()
        self.messages_sent.clear()
        self.rows_by_age.clear()
