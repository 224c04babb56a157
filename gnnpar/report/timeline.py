"""The data of the interactive timeline: one step, as numbers that the page's script draws."""

from __future__ import annotations

from typing import Any

from gnnpar.report.measure import Measured
from gnnpar.trace.attribution import CATEGORIES, category_of
from gnnpar.trace.timeline import Op

__all__ = ["timeline_data"]

MOST_PIECES = 20_000

WAITING = len(CATEGORIES)
"""Number of the category of waits, which follows the others."""


def timeline_data(measured: Measured) -> dict[str, Any]:
    """Times in microseconds since the step's first start; strings are numbered.

    `lanes`: for every rank its name and three rows of [start, length, category, text]: actions as predicted,
    actions as measured, and what the rank did inside of them (waits are the last category). `path`: the
    critical path, as [rank, start, length].
    """
    step = measured.step
    origin = min(ops[0].start for ops in step.ranks if ops)
    end = max(ops[-1].end for ops in step.ranks if ops)
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def piece(start: float, length: float, category: int, text: str) -> list[float]:
        return [round(start * 1e6, 1), round(length * 1e6, 1), category, number(text)]

    count = sum(len(ops) for ops in step.ranks)
    least = (end - origin) / 20_000 if count > MOST_PIECES else 0.0
    lanes = []
    for rank, ops in enumerate(step.ranks):
        planned: list[list[float]] = []
        done: list[list[float]] = []
        if measured.prediction is not None:
            for bars, row in ((measured.prediction.predicted, planned), (measured.prediction.measured, done)):
                row += [
                    piece(bar.start, bar.end - bar.start, _of_action(bar.action.kind.name), str(bar.action))
                    for bar in bars
                    if bar.rank == rank
                ]
        else:
            seen: set[int] = set()
            for op in ops:
                if op.action is not None and id(op.action) not in seen:
                    seen.add(id(op.action))
                    one = op.action
                    done.append(
                        piece(one.start - origin, one.end - one.start, _of_action(one.kind), one.text)
                    )
        inside = [
            piece(op.start - origin, op.seconds, _category(op), _text(op))
            for op in ops
            if op.seconds > least and op.what in ("work", "wait")
        ]
        lanes.append({"name": f"rank {rank}", "rows": [planned, done, inside]})
    return {
        "end": round((end - origin) * 1e6, 1),
        "lanes": lanes,
        "texts": list(texts),
        "categories": [*CATEGORIES, "waiting"],
        "path": [
            [one.rank, round((one.start - origin) * 1e6, 1), round((one.end - one.start) * 1e6, 1)]
            for one in measured.path
            if one.end - one.start > least
        ],
    }


def _of_action(kind: str) -> int:
    of = {"F": "row-wise forward", "W": "weight gradients"}
    return CATEGORIES.index(of.get(kind, "row-wise backward"))


def _category(op: Op) -> int:
    category = category_of(op)
    return WAITING if category == "waiting" else CATEGORIES.index(category)


def _text(op: Op) -> str:
    event = op.event
    parts = [event.text if event.kind.isupper() and event.text else f"{event.kind} {event.text}".strip()]
    if op.action is not None and op.action is not event:
        parts.append(f"in {op.action.text}")
    if event.layer >= 0:
        parts.append(f"layer {event.layer}")
    if event.peer >= 0:
        parts.append(f"{'to' if event.sent else 'from'} rank {event.peer}")
    if event.size:
        parts.append(f"{event.size} bytes")
    return ", ".join(parts)
