"""Logs as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnpar.trace.log import Log
from gnnpar.trace.timeline import Epoch, Event, epochs

__all__ = ["MOST_EVENTS", "write_perfetto"]

MOST_EVENTS = 200_000
"""About 40 MB of JSON; of longer traces the last epochs are written."""


def write_perfetto(logs: Sequence[Log], path: Path, most: int = MOST_EVENTS) -> int:
    """Write the complete epochs of all ranks: a process a rank, spans nested on one thread, arrows from sends
    to the waits for them, and memory as a counter. Returns the number of spans. Cost: about 15 µs a span.

    Args:
        most: spans; of more, those of the last epochs.
    """
    wanted = _last_epochs(logs, most)
    found = [epochs(log, wanted) for log in logs]
    origin = min((epoch.start for rank in found for epoch in rank.values()), default=0.0)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        first = True
        for log, of_rank in zip(logs, found, strict=True):
            for one in _of_rank(log, list(of_rank.values()), origin):
                file.write(("" if first else ",\n") + json.dumps(one, separators=(",", ":")))
                first = False
                count += one["ph"] == "X"
        file.write("\n]}\n")
    return count


def _last_epochs(logs: Sequence[Log], most: int) -> list[int]:
    of_ranks = [{note["epoch"] for note in log.notes} for log in logs]
    numbers = sorted(set.intersection(*of_ranks)) if of_ranks else []
    each = sum(len(log.events) for log in logs) / max(1, len(numbers))
    return numbers[-max(1, int(most / max(each, 1.0))) :]


def _of_rank(log: Log, found: Sequence[Epoch], origin: float) -> Iterator[dict[str, Any]]:
    pid = log.rank
    name = f"rank {pid}, column {log.about.get('column', pid)}, way {log.about.get('way', 0)}"
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "thread_name", "args": {"name": "work"}}
    memory = {note["epoch"]: note.get("resident_bytes") for note in log.notes}
    counts: Counter[tuple[str, int, int]] = Counter()
    for epoch in found:
        at = {"pid": pid, "tid": 0}
        resident = memory.get(epoch.number)
        if resident is not None:
            value = {"resident MiB": round(resident / 2**20, 1)}
            yield {"ph": "C", **at, "name": "memory", "ts": _us(epoch.end - origin), "args": value}
        for event in epoch.events:
            start, end = _us(event.start - origin), _us(event.end - origin)
            yield {
                "ph": "X",
                **at,
                "name": _name(event),
                "cat": event.kind,
                "ts": start,
                "dur": round(end - start, 3),
                "args": _arguments(event),
            }
            sends = event.kind == "send"
            if sends or (event.kind == "wait" and not event.sent and event.peer >= 0):
                source, target = (pid, event.peer) if sends else (event.peer, pid)
                counts[event.kind, event.peer, event.tag] += 1
                number = counts[event.kind, event.peer, event.tag]
                arrow = {
                    "name": event.text,
                    "cat": "message",
                    "id": f"{source}-{target}-{event.tag}-{number}",
                }
                # A flow starts and ends inside the spans that it joins.
                yield (
                    {"ph": "s", **at, "ts": start, **arrow}
                    if sends
                    else {
                        "ph": "f",
                        "bp": "e",
                        **at,
                        "ts": end,
                        **arrow,
                    }
                )


def _name(event: Event) -> str:
    if event.kind in ("epoch", "step"):
        return f"{event.kind} {event.batch}"
    return (
        event.text if len(event.kind) <= 1 or event.kind.isupper() else f"{event.kind} {event.text}".strip()
    )


def _arguments(event: Event) -> dict[str, int]:
    places = {"stage": event.stage, "layer": event.layer, "batch": event.batch, "peer": event.peer}
    arguments = {key: value for key, value in places.items() if value >= 0}
    return arguments | ({"bytes": event.size} if event.size else {})


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
