"""`Recorder`: what a rank did and when, and what it sent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from gnnpar.trace.log import EventLog

__all__ = ["Recorder", "resident_bytes"]


class Recorder:
    """Counters of one rank, and where a log is given its events. Costs about a microsecond a span, and
    another one with a log.

    Args:
        log: gets every event (None: only sums are kept).
        every: only of every so many epochs.
        settle: waits until the device has done what was asked of it, so that a span covers its work; called
            at the end of every span that goes to the log.
    """

    def __init__(
        self, log: EventLog | None = None, every: int = 1, settle: Callable[[], None] | None = None
    ) -> None:
        self.log = log
        self.every = every
        self.settle = settle
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes_sent: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.messages_sent: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.rows_by_age: defaultdict[int, int] = defaultdict(int)
        self._to = log
        """The log, or None in epochs that it does not get."""
        self._epoch: tuple[int, float] | None = None

    def span(self, kind: str, what: str = "", **where: Any) -> _Span:
        """A context whose time is added to `kind`. Spans may nest; each counts its whole length.

        Args:
            where: stage, batch, layer, peer, tag, size, sent: see `EVENT` of the log.
        """
        return _Span(self, kind, what, where)

    def add(
        self,
        kind: str,
        start: float,
        what: str = "",
        *,
        stage: int = -1,
        batch: int = -1,
        layer: int = -1,
        peer: int = -1,
        tag: int = 0,
        size: int = 0,
        sent: bool = False,
    ) -> float:
        """Record a span that began at `start` and ends now; returns its seconds."""
        if self._to is not None and self.settle is not None:
            self.settle()
        end = time.perf_counter()
        self.seconds[kind] += end - start
        if self._to is not None:
            self._to.add(kind, what, start, end, stage, batch, layer, peer, tag, size, sent)
        return end - start

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
        """Forget all sums."""
        self.seconds.clear()
        self.bytes_sent.clear()
        self.messages_sent.clear()
        self.rows_by_age.clear()

    def start_epoch(self, number: int) -> None:
        """Start an epoch, 1 or higher, from nothing; the log gets the one before."""
        self.end_epoch()
        self.reset()
        self._epoch = number, time.perf_counter()
        self._to = self.log if (number - 1) % self.every == 0 else None

    def end_epoch(self) -> None:
        """The epoch, if there is one, ends now: its events and sums can be read in the log."""
        if self._epoch is not None and self._to is not None:
            number, start = self._epoch
            self.add("epoch", start, batch=number)
            sent = [
                [kind, peer, count, self.messages_sent[kind, peer]]
                for (kind, peer), count in sorted(self.bytes_sent.items())
            ]
            self._to.note({"epoch": number, "sent": sent, "resident_bytes": resident_bytes()})
        self._epoch, self._to = None, None

    def close(self) -> None:
        """End the log; an epoch under way, as of a run that failed, stays incomplete in it."""
        if self.log is not None:
            self.log.close()


class _Span:
    """A class, since a generator costs three times as much."""

    __slots__ = ("kind", "recorder", "start", "what", "where")

    def __init__(self, recorder: Recorder, kind: str, what: str, where: dict[str, Any]) -> None:
        self.recorder = recorder
        self.kind = kind
        self.what = what
        self.where = where

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.recorder.add(self.kind, self.start, self.what, **self.where)


def resident_bytes() -> int | None:
    """Memory of this process that is in use now; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize()
