"""The report as one HTML page: nothing is loaded from anywhere, it reads in light and dark, and prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gnnpar.report import facts
from gnnpar.report.charts import Line, lines, matrix, slug, stacked
from gnnpar.report.measure import Measured
from gnnpar.report.run import RunRecord
from gnnpar.report.timeline import timeline_data
from gnnpar.trace.attribution import CATEGORIES

__all__ = ["html_page"]

ASSETS = Path(__file__).parent / "assets"

BREAKDOWN = (
    "Every moment of a rank counts once, so a bar is the epoch. <i>Bubble</i>: what the schedule makes a "
    "rank wait even if all stages and micro-batches are alike; <i>imbalance</i>: what it waits beyond that "
    "for others that work longer (stages, ways), or for micro-batches of unequal cost (chunks); "
    "<i>communication</i>: what it waits beyond that because messages take time, and packing them."
)


def html_page(pairs: Sequence[tuple[RunRecord, Measured | None]]) -> str:
    """The page of one run or of several side by side."""
    runs = [run for run, _ in pairs]
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    sub = facts.headline(runs[0]) if len(runs) == 1 else "; ".join(run.name for run in runs)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(sub)}</p>',
        *(f'<p class="note">{_of(run, runs)}{escape(note)}</p>' for run in runs for note in run.notes),
        _section("summary", "Summary", _table(["", *_names(runs)], facts.summary_rows(runs))),
        _curves(runs),
        _breakdown(pairs),
        *(_steps(number, run, measured, runs) for number, (run, measured) in enumerate(pairs) if measured),
        _bytes(pairs),
        _staleness(runs),
        _memory(pairs),
        _taxonomy(runs),
        _environment(runs),
    ]
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    script = (ASSETS / "timeline.js").read_text(encoding="utf-8")
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>gnnpar: {escape(title)}</title><style>\n{style}</style></head><body>"
    )
    foot = f'<div id="tip"></div><script>\n{script}</script></body></html>\n'
    return "\n".join([head, *(part for part in body if part), foot])


def _curves(runs: Sequence[RunRecord]) -> str:
    several = len(runs) > 1
    loss, metric, seconds = [], [], []
    for number, run in enumerate(runs):
        of = f"{run.name}, " if several else ""
        loss.append(Line(f"{of}training loss", _points(run, "train_loss"), number))
        loss.append(Line(f"{of}validation loss", _points(run, "val_loss"), number if several else 1, True))
        for place, name in enumerate(("train", "val", "test")):
            if several and name != "test":
                continue
            style = number if several else place
            metric.append(Line(f"{of}{_SPLITS[name]}", _points(run, f"{name}_metric"), style))
        points = _points(run, "epoch_time_s", 1e3)
        seconds.append(Line(f"{of}epoch time", points[2:] or points, number))
    name = "accuracy" if all(_metric(run) == "accuracy" for run in runs) else "score"
    charts = [
        ("Loss", lines(loss)),
        (name.capitalize(), lines(metric)),
        ("Time of a step after the first two, ms", lines(seconds)),
    ]
    inner = "".join(f"<div><h3>{title}</h3>{chart}</div>" for title, chart in charts if chart)
    return _section("curves", "Curves", f'<div class="pair">{inner}</div>') if inner else ""


_SPLITS = {"train": "training", "val": "validation", "test": "test"}


def _metric(run: RunRecord) -> str:
    return next((str(row["metric"]) for row in run.epochs if "metric" in row), "accuracy")


def _points(run: RunRecord, key: str, factor: float = 1.0) -> list[tuple[float, float]]:
    return [
        (row["epoch"], factor * row[key]) for row in run.epochs if row.get(key) is not None and "epoch" in row
    ]


def _breakdown(pairs: Sequence[tuple[RunRecord, Measured | None]]) -> str:
    rows = []
    tables = []
    for run, measured in pairs:
        if measured is None:
            continue
        of = f"{run.name}, " if len(pairs) > 1 else ""
        for rank in measured.breakdown:
            values = {category: 1e3 * value for category, value in rank.seconds.items()}
            rows.append((f"{_short(of, 14)}rank {rank.rank}", values))
        head = ["ms per epoch", *(f"rank {rank.rank}" for rank in measured.breakdown), "of all"]
        table = _table(head, facts.breakdown_rows(measured), swatch=True)
        mean = f'<p class="sub">{escape(of)}mean of {len(measured.epochs)} epochs</p>'
        tables.append(f"<div>{mean}{table}</div>")
    if not rows:
        return ""
    bars = stacked(rows, unit="ms", categories=CATEGORIES)
    opened = " open" if len(tables) == 1 else ""
    numbers = (
        f'<details{opened}><summary>In numbers</summary><div class="pair">{"".join(tables)}</div></details>'
    )
    inner = f"<p>{BREAKDOWN}</p>{bars}{numbers}"
    return _section("breakdown", "Where an epoch goes", inner)


def _steps(number: int, run: RunRecord, measured: Measured, runs: Sequence[RunRecord]) -> str:
    data = json.dumps(timeline_data(measured), separators=(",", ":")).replace("<", "\\u003c")
    source = f"timeline-{number}"
    rows = (
        "predicted actions, measured actions, and what happened inside them"
        if measured.prediction
        else ("actions, and what happened inside them")
    )
    keys = "".join(
        f'<span class="key"><i class="{slug(one)}"></i>{one}</span>' for one in (*_used(measured), "waiting")
    )
    timeline = (
        f"<p>The first step of epoch {measured.epoch}. Of every rank: {rows}; the line below is the critical "
        "path. Zoom with the wheel (click first, or hold Shift), drag to move; keys + − 0 and arrows.</p>"
        '<div><div class="tools"><button data-act="in">+</button><button data-act="out">−</button>'
        '<button data-act="all">all</button></div>'
        f'<div class="timeline" data-source="{source}">'
        '<canvas tabindex="0" aria-label="timeline"></canvas></div>'
        f'<p class="legend">{keys}</p></div>'
        f'<script type="application/json" id="{source}">{data}</script>'
    )
    path = _table(["on the critical path", "ms", "share"], facts.path_rows(measured), swatch=True)
    what_if = _table(["the step", "ms", "ratio"], facts.what_if_rows(measured))
    parts = [timeline, f'<div class="pair"><div><h3>Critical path</h3>{path}</div>']
    parts.append(f"<div><h3>What if</h3>{what_if}</div></div>")
    predicted = facts.prediction_rows(measured)
    if predicted:
        head = ["last action of", "predicted ms", "measured ms", "error"]
        text = (
            "The simulator with this run's own costs: means over the other epochs of each stage's actions, "
            "and of what messages took that were waited for."
        )
        parts.append(f"<h3>Predicted against measured</h3><p>{text}</p>{_table(head, predicted)}")
    return _section(f"step-{number}", f"One step{_of(run, runs, ' of ')}", "".join(parts))


def _used(measured: Measured) -> list[str]:
    split = ("bubble", "imbalance stage", "imbalance chunk")
    return [
        one
        for one in CATEGORIES
        if one not in (*split, "evaluation") and any(rank.seconds[one] > 0 for rank in measured.breakdown)
    ]


def _bytes(pairs: Sequence[tuple[RunRecord, Measured | None]]) -> str:
    parts = []
    for run, measured in pairs:
        if measured is None or not measured.sent:
            continue
        ranks = range(len(measured.breakdown))
        total = [
            [sum(v for (_, a, b), v in measured.sent.items() if (a, b) == (i, j)) for j in ranks]
            for i in ranks
        ]
        texts = [[facts.bytes_text(value) if value else "·" for value in row] for row in total]
        kinds = sorted({kind for kind, _, _ in measured.sent})
        rows = [
            [
                kind,
                facts.bytes_text(sum(v for (one, _, _), v in measured.sent.items() if one == kind)),
                f"{sum(v for (one, _, _), v in measured.messages.items() if one == kind):.1f}",
            ]
            for kind in kinds
        ]
        names = [f"rank {rank}" for rank in ranks]
        of = f"<h3>{escape(run.name)}</h3>" if len(pairs) > 1 else ""
        table = _table(["kind", "bytes per epoch", "messages"], rows)
        parts.append(
            f'{of}<div class="pair"><div class="scroll">{matrix(names, total, texts)}</div>{table}</div>'
        )
    return _section("bytes", "Bytes sent per epoch", "".join(parts)) if parts else ""


def _staleness(runs: Sequence[RunRecord]) -> str:
    if not any(row.get("history_read_share") for run in runs for row in run.epochs):
        return ""
    ages: list[Line] = []
    shares: list[Line] = []
    errors: list[Line] = []
    for number, run in enumerate(runs):
        of = f"{run.name}, " if len(runs) > 1 else ""
        ages.append(Line(f"{of}mean", _points(run, "history_age"), number))
        if any(row.get("history_age_max") != row.get("history_age") for row in run.epochs):
            ages.append(Line(f"{of}largest", _points(run, "history_age_max"), number, True))
        shares.append(Line(f"{of}share of reads", _points(run, "history_read_share", 100.0), number))
        errors.append(Line(f"{of}error", _points(run, "history_error", 100.0), number))
    charts = [
        ("Age of the histories read, steps", lines(ages)),
        ("Share of reads that are historical", lines(shares, unit="%")),
        ("Relative error of the histories", lines(errors, unit="%")),
    ]
    inner = "".join(f"<div><h3>{title}</h3>{chart}</div>" for title, chart in charts if chart)
    return _section("staleness", "Staleness", f'<div class="pair">{inner}</div>')


def _memory(pairs: Sequence[tuple[RunRecord, Measured | None]]) -> str:
    curves: list[Line] = []
    for run, measured in pairs:
        of = f"{run.name}, " if len(pairs) > 1 else ""
        for rank, points in enumerate(measured.memory if measured else ()):
            spots = [(float(epoch), size / 2**20) for epoch, size in points]
            curves.append(Line(f"{of}rank {rank}", spots, len(curves)))
    chart = lines(curves, unit=" MiB")
    inner = f'<div class="pair"><div>{chart}</div></div>'
    return _section("memory", "Memory in use at the end of an epoch", inner) if chart else ""


def _taxonomy(runs: Sequence[RunRecord]) -> str:
    rows = facts.taxonomy_rows(runs)
    table = _table(["", *_names(runs)], rows, text=True)
    return _section("taxonomy", "Kind of parallelism, after Besta and Hoefler", table) if rows else ""


def _environment(runs: Sequence[RunRecord]) -> str:
    parts = []
    for run in runs:
        of = f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else ""
        environment = {
            key: value for key, value in run.environment.items() if key not in ("packages", "variables")
        }
        packages = {key: value for key, value in (run.environment.get("packages") or {}).items() if value}
        rows = [[key, str(value)] for key, value in (environment | packages).items() if value is not None]
        rows += [[key, str(value)] for key, value in (run.environment.get("variables") or {}).items()]
        config = json.dumps(run.config, indent=1, ensure_ascii=False)
        parts.append(
            f"{of}<pre>{escape(run.command)}</pre>"
            f"<details><summary>Environment</summary>{_table(['', ''], rows, text=True)}</details>"
            f"<details><summary>Configuration</summary><pre>{escape(config)}</pre></details>"
        )
    return _section("environment", "Command and environment", "".join(parts))


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, swatch: bool = False, text: bool = False
) -> str:
    side = ' class="text"' if text else ""

    def first(cell: str) -> str:
        mark = (
            f'<span class="key"><i class="{slug(cell)}"></i></span>' if swatch and cell in CATEGORIES else ""
        )
        return f"<td>{mark}{escape(cell)}</td>"

    heads = "".join(f"<th{side}>{escape(cell)}</th>" for cell in head) if any(head) else ""
    lines_ = "".join(
        f"<tr>{first(row[0])}{''.join(f'<td{side}>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table>{f"<tr>{heads}</tr>" if heads else ""}{lines_}</table></div>'


def _section(key: str, title: str, inner: str) -> str:
    return f'<section id="{key}"><h2>{escape(title)}</h2>{inner}</section>'


def _names(runs: Sequence[RunRecord]) -> list[str]:
    return [run.name for run in runs] if len(runs) > 1 else [""]


def _of(run: RunRecord, runs: Sequence[RunRecord], before: str = "") -> str:
    if len(runs) == 1:
        return ""
    return f"{before}{run.name}" if before else f"{escape(run.name)}: "


def _short(name: str, most: int) -> str:
    """A name that fits beside a bar."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"
