"""What a rank was doing at every moment: its events nested, and cut into pieces at their ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnpar.trace.log import Log

__all__ = ["COMPUTES", "Epoch", "Event", "Op", "Step", "epochs", "steps_of"]

COMPUTES = frozenset({"F", "B", "I", "W"})
"""Kinds of the events that are computing actions of a schedule."""

_MESSAGES = frozenset({"send", "post", "wait"})


class Event(NamedTuple):
    """One event, its strings spelled out; see `EVENT` of the log."""

    kind: str
    text: str
    start: float
    end: float
    stage: int
    batch: int
    layer: int
    peer: int
    tag: int
    size: int
    sent: bool


class Op(NamedTuple):
    """What a rank did next: `work`, or something with a message: `send`, `post` (a receive), `wait`.

    Attributes:
        event: the innermost event around it.
        action: the computing action that it is a part of, if any.
        part: "step", "evaluation" or "" (neither).
    """

    what: str
    start: float
    end: float
    event: Event
    action: Event | None
    part: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Epoch:
    """One epoch of one rank: its operations in order, whose times add up to it.

    Attributes:
        events: all events in it, outer ones first.
    """

    rank: int
    number: int
    start: float
    end: float
    events: Sequence[Event]
    ops: Sequence[Op]

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Step:
    """One training step on all ranks: each rank's operations from its start to its end."""

    number: int
    ranks: Sequence[Sequence[Op]]


def epochs(log: Log, wanted: Iterable[int] | None = None) -> dict[int, Epoch]:
    """The complete epochs of a rank by number.

    Args:
        wanted: numbers of the epochs to take, None: all. Cost: about 3 µs an event.
    """
    kind = {text: number for number, text in enumerate(log.texts)}.get("epoch", -1)
    found = {}
    chosen = None if wanted is None else set(wanted)
    ends = log.events["end"]
    for place in np.flatnonzero(log.events["kind"] == kind).tolist():
        row = log.events[place]
        number, start, end = int(row["batch"]), float(row["start"]), float(row["end"])
        if chosen is not None and number not in chosen:
            continue
        # In the order of their ends: those of an epoch lie together, before its own.
        first = int(np.searchsorted(ends[: place + 1], start, side="right"))
        inside = log.events[first : place + 1]
        inside = inside[inside["start"] >= start]
        inside = inside[np.lexsort((-inside["end"], inside["start"]))]
        events = [_event(log.texts, row) for row in inside.tolist()]
        found[number] = Epoch(log.rank, number, start, end, events, list(_ops(events)))
    return found


def steps_of(ranks: Sequence[Epoch]) -> list[Step]:
    """The training steps of one epoch, given that epoch on every rank; those that all ranks have."""
    of_ranks = [_split(epoch) for epoch in ranks]
    numbers = set.intersection(*(set(found) for found in of_ranks)) if of_ranks else set()
    return [Step(number, [found[number] for found in of_ranks]) for number in sorted(numbers)]


def _split(epoch: Epoch) -> dict[int, list[Op]]:
    ops = iter([op for op in epoch.ops if op.part == "step"])
    found: dict[int, list[Op]] = {}
    op = next(ops, None)
    for span in (event for event in epoch.events if event.kind == "step"):
        found[span.batch] = []
        while op is not None and op.end <= span.end:
            found[span.batch].append(op)
            op = next(ops, None)
    return found


def _event(texts: Sequence[str], row: tuple[float | int, ...]) -> Event:
    start, end, size, tag, batch, kind, text, stage, layer, peer, sent = row
    return Event(
        kind=texts[int(kind)],
        text=texts[int(text)],
        start=float(start),
        end=float(end),
        stage=int(stage),
        batch=int(batch),
        layer=int(layer),
        peer=int(peer),
        tag=int(tag),
        size=int(size),
        sent=bool(sent),
    )


def _ops(events: Sequence[Event]) -> Iterator[Op]:
    """Sweeps over nested events, outer ones first; pieces belong to the innermost event around them."""
    stack: list[tuple[Event, Event | None, str]] = []
    now = 0.0

    def until(end: float) -> Iterator[Op]:
        nonlocal now
        event, action, part = stack[-1]
        if event.kind == "wait":
            yield Op("wait", now, max(now, end), event, action, part)
        elif end > now:
            yield Op("work", now, end, event, action, part)
        now = max(now, end)

    for event in events:
        while stack and stack[-1][0].end <= event.start:
            yield from until(stack[-1][0].end)
            stack.pop()
        if stack:
            # Not for a wait, which has nothing inside and is one piece.
            yield from until(event.start)
            action, part = stack[-1][1:]
        else:
            now, action, part = event.start, None, ""
        if event.kind in COMPUTES:
            action = event
        elif event.kind in ("step", "evaluation"):
            part = event.kind
        stack.append((event, action, part))
        if event.kind in _MESSAGES and event.kind != "wait":
            yield Op(event.kind, now, now, event, action, part)
    while stack:
        yield from until(stack[-1][0].end)
        stack.pop()
