"""Figures as PDF and SVG: breakdown, curves, and a step as predicted and as measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnpar.report.measure import Measured
from gnnpar.report.run import RunRecord
from gnnpar.schedule import Timed
from gnnpar.schedule.draw import svg
from gnnpar.trace.attribution import CATEGORIES

__all__ = ["COLOURS", "write_figures"]

COLOURS = {
    "aggregation forward": "#1f77b4",
    "aggregation backward": "#4d9bd6",
    "row-wise forward": "#2a9d8f",
    "row-wise backward": "#63bfae",
    "weight gradients": "#9bd3c8",
    "communication stage": "#e07b00",
    "communication halo": "#f2a541",
    "communication feature": "#d9a066",
    "communication weight": "#c65d00",
    "communication history": "#ffc46b",
    "communication control": "#f6d3a2",
    "bubble": "#b9c0c9",
    "imbalance stage": "#c2334d",
    "imbalance chunk": "#e57a8a",
    "optimizer": "#7b5ea7",
    "input": "#8c6d46",
    "evaluation": "#a99bc9",
    "other": "#dcdfe3",
}


def write_figures(pairs: Sequence[tuple[RunRecord, Measured | None]], folder: Path) -> list[Path]:
    """Write what there is to draw; the files. Needs matplotlib."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    if any(run.epochs for run, _ in pairs):
        figures["curves"] = _curves([run for run, _ in pairs], Figure(figsize=(7, 2.6), layout="constrained"))
    measured = [(run, found) for run, found in pairs if found is not None]
    if measured:
        rows = sum(len(found.breakdown) for _, found in measured)
        figure = Figure(figsize=(7, 1.6 + 0.3 * rows), layout="constrained")
        figures["breakdown"] = _breakdown(measured, figure)
    written = []
    for name, figure in figures.items():
        for ending in ("pdf", "svg"):
            path = folder / f"{name}.{ending}"
            figure.savefig(path)
            written.append(path)
    for run, found in measured:
        if found.prediction is not None:
            path = folder / f"step-{run.name}.svg"
            path.write_text(_step(run, found), encoding="utf-8")
            written.append(path)
    return written


def _curves(runs: Sequence[RunRecord], figure: Any) -> Any:
    left, right = figure.subplots(1, 2)
    for number, run in enumerate(runs):
        colour = f"C{number}"
        of = f"{run.name}, " if len(runs) > 1 else ""
        for axes, key, name, style in (
            (left, "train_loss", "training loss", "-"),
            (left, "val_loss", "validation loss", "--"),
            (right, "val_metric", "validation", "--"),
            (right, "test_metric", "test", "-"),
        ):
            points = [(row["epoch"], row[key]) for row in run.epochs if row.get(key) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), style, color=colour, label=f"{of}{name}", linewidth=1.2)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(fontsize=7, frameon=False)
    return figure


def _breakdown(pairs: Sequence[tuple[RunRecord, Measured]], figure: Any) -> Any:
    axes = figure.subplots()
    rows = [
        (f"{run.name}, rank {rank.rank}" if len(pairs) > 1 else f"rank {rank.rank}", rank.seconds)
        for run, found in pairs
        for rank in found.breakdown
    ]
    left = [0.0] * len(rows)
    for category in CATEGORIES:
        values = [1e3 * seconds[category] for _, seconds in rows]
        if sum(values) > 0:
            axes.barh([name for name, _ in rows], values, left=left, color=COLOURS[category], label=category)
            left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms per epoch")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def _step(run: RunRecord, found: Measured) -> str:
    """Two lanes a rank: as predicted, as measured."""
    assert found.prediction is not None
    bars = [
        Timed(2 * bar.rank + place, 1e3 * bar.start, 1e3 * bar.end, bar.action)
        for place, timed in enumerate((found.prediction.predicted, found.prediction.measured))
        for bar in timed
    ]
    names = [f"{rank} {what}" for rank in range(len(found.breakdown)) for what in ("plan", "real")]
    return svg(bars, title=f"{run.name}, epoch {found.epoch}, ms", names=names)
