"""One picture writer for plans and measurements: terminal grid, SVG, Chrome/Perfetto trace.

Every function takes timed actions, from ``simulate(...).timeline`` or from a run's events by ``measured``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

from gnnpar.schedule.action import Action, Kind
from gnnpar.schedule.simulate import Timed

__all__ = ["chrome", "grid", "measured", "svg"]

_COLOURS = {
    Kind.F: "#8ecae6",
    Kind.B: "#ffb703",
    Kind.I: "#fb8500",
    Kind.W: "#95d5b2",
    Kind.REDUCE: "#cdb4db",
    Kind.STEP: "#adb5bd",
}
_MESSAGE_COLOUR = "#dee2e6"


def measured(ranks: Iterable[Iterable[tuple[str, float, float]]]) -> list[Timed]:
    """What ranks recorded, as the other functions take it; time 0 is the first start.

    Args:
        ranks: for each rank (action as text, start, end), on one clock.

    Raises:
        InputError: a text is not one action.
    """
    events = [(rank, *event) for rank, found in enumerate(ranks) for event in found]
    origin = min((start for _, _, start, _ in events), default=0.0)
    return [
        Timed(rank, start - origin, end - origin, Action.parse(text)) for rank, text, start, end in events
    ]


def grid(timed: Iterable[Timed], *, slot: float | None = None, wrap: int = 0) -> str:
    """A rank × time grid for the terminal: ``.`` is idle, ``-`` continues the action to its left.

    Args:
        timed: actions with their times; those of no length are left out.
        slot: time of one column; default: the shortest action. A column shows the action at its middle.
        wrap: characters after which the grid goes on below; 0 for never.
    """
    bars = [bar for bar in timed if bar.end > bar.start]
    if not bars:
        return ""
    slot = slot or min(bar.end - bar.start for bar in bars)
    columns = max(1, round(max(bar.end for bar in bars) / slot))
    num_ranks = 1 + max(bar.rank for bar in bars)
    plain = _one_stage_each(bars)
    cells = [["."] * columns for _ in range(num_ranks)]
    for bar in sorted(bars, key=lambda bar: bar.start):
        first = max(0, round(bar.start / slot))
        last = max(first + 1, round(bar.end / slot))
        for column in range(first, min(last, columns)):
            label = _label(bar.action, plain) if column == first else "-"
            taken = cells[bar.rank][column]
            # Overlapped parts of a compound share a column.
            cells[bar.rank][column] = label if taken in (".", "-") else f"{taken}{label.strip('-')}"
    width = max(len(cell) for row in cells for cell in row)
    head = len(f"rank {num_ranks - 1}")
    block = max(1, (wrap - head - 1) // (width + 1)) if wrap else columns
    names = [f"rank {rank}".ljust(head) for rank in range(num_ranks)]
    blocks = (
        "\n".join(
            f"{name}  {' '.join(cell.ljust(width) for cell in row[at : at + block])}".rstrip()
            for name, row in zip(names, cells, strict=True)
        )
        for at in range(0, columns, block)
    )
    return "\n\n".join(blocks)


def svg(timed: Iterable[Timed], *, title: str = "", width: int = 1200, names: Sequence[str] = ()) -> str:
    """The timeline as an SVG image, one lane a rank, every action with a tooltip.

    Args:
        names: of the lanes, where they are not ranks.
    """
    bars = [bar for bar in timed if bar.end > bar.start]
    lane, left, top = 26, 60, 28 if title else 8
    span = max((bar.end for bar in bars), default=1.0)
    num_ranks = 1 + max((bar.rank for bar in bars), default=0)
    scale = (width - left - 8) / span
    plain = _one_stage_each(bars)
    height = top + lane * num_ranks + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">'
    ]
    if title:
        lines.append(f'<text x="{left}" y="18">{escape(title)}</text>')
    for rank in range(num_ranks):
        y = top + lane * rank
        name = names[rank] if names else f"rank {rank}"
        lines.append(f'<text x="4" y="{y + 16}">{escape(name)}</text>')
        size = f'width="{span * scale:.2f}" height="{lane - 4}"'
        lines.append(f'<rect x="{left}" y="{y}" {size} fill="#f1f3f5"/>')
    for bar in bars:
        x, y, length = left + bar.start * scale, top + lane * bar.rank, (bar.end - bar.start) * scale
        label = escape(_label(bar.action, plain))
        tip = f"{escape(str(bar.action))}: {bar.start:g} – {bar.end:g}"
        size = f'width="{length:.2f}" height="{lane - 4}"'
        look = f'fill="{_colour(bar.action)}" stroke="white"'
        lines.append(f'<rect x="{x:.2f}" y="{y}" {size} {look}><title>{tip}</title></rect>')
        if length > 7 * len(label):
            middle = f'x="{x + length / 2:.2f}" y="{y + 15}" text-anchor="middle"'
            lines.append(f"<text {middle}>{label}</text>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def chrome(timed: Iterable[Timed], *, unit_us: float = 1.0, name: str = "gnnpar") -> str:
    """The timeline as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

    Args:
        unit_us: microseconds in one unit of time (1e6 for measured seconds).
    """
    bars = list(timed)
    events: list[dict[str, object]] = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}}]
    events += [
        {"ph": "M", "pid": 0, "tid": rank, "name": "thread_name", "args": {"name": f"rank {rank}"}}
        for rank in sorted({bar.rank for bar in bars})
    ]
    events += [
        {
            "ph": "X",
            "pid": 0,
            "tid": bar.rank,
            "name": str(bar.action),
            "cat": bar.action.kind.name,
            "ts": bar.start * unit_us,
            "dur": (bar.end - bar.start) * unit_us,
        }
        for bar in bars
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _one_stage_each(bars: Iterable[Timed]) -> bool:
    """Whether the rank already says which stage an action is of."""
    held: dict[int, set[tuple[int, int]]] = {}
    for bar in bars:
        held.setdefault(bar.rank, set()).add((bar.action.replica, bar.action.stage))
    return all(len(stages) == 1 for stages in held.values())


def _label(action: Action, plain: bool) -> str:
    text = str(action)
    return text.removeprefix(str(action.stage)).removesuffix(f"@{action.replica}") if plain else text


def _colour(action: Action) -> str:
    return _COLOURS.get(action.kind, _MESSAGE_COLOUR)
