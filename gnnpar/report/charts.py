"""Charts as inline SVG, coloured by the page's style sheet: lines, stacked bars, matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "lines", "matrix", "slug", "stacked"]

WIDTH = 520
BAR_WIDTH = 1070
MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One curve: (x, y) in order; `style` is a number that picks its colour; dashed for a second meaning."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 0
    dashed: bool = False


def slug(category: str) -> str:
    """The class of a category in the style sheet."""
    return "c-" + category.replace(" ", "-")


def lines(curves: Sequence[Line], *, unit: str = "", x_name: str = "epoch", height: int = 220) -> str:
    """A line chart with a legend where there is more than one curve; "" where there is no point."""
    curves = [Line(c.name, _thin(_finite(c.points)), c.style, c.dashed) for c in curves]
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    low_x, high_x = min(xs), max(xs)
    ticks = _ticks(min(ys), max(ys))
    low, high = min(ticks[0], min(ys)), max(ticks[-1], max(ys))
    left, top, bottom, right = 64, 10, 34, 12
    inner, tall = WIDTH - left - right, height - top - bottom

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return left + across * inner, top + (1 - up) * tall

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_names(curves)}">']
    for tick in ticks:
        _, y = place(low_x, tick)
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}{unit}</text>'
        )
    for x in sorted({low_x, (low_x + high_x) / 2, high_x}):
        across, _ = place(x, low)
        parts.append(
            f'<text class="tick" x="{across:.1f}" y="{height - 14}" text-anchor="middle">{x:g}</text>'
        )
    parts.append(f'<text class="tick" x="{WIDTH - right}" y="{height - 2}" text-anchor="end">{x_name}</text>')
    for curve in curves:
        spots = [place(x, y) for x, y in curve.points]
        path = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(spots))
        look = f'class="line s{curve.style % 6}{" dashed" if curve.dashed else ""}"'
        last = f"{curve.points[-1][1]:.4g}{unit}"
        parts.append(f'<path {look} d="{path}"><title>{escape(curve.name)}: last {last}</title></path>')
        if len(spots) <= 40:
            parts += [
                f'<circle class="dot s{curve.style % 6}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{escape(curve.name)}, {x_name} {at:g}: {value:.5g}{unit}</title></circle>"
                for (x, y), (at, value) in zip(spots, curve.points, strict=True)
            ]
    return "\n".join([*parts, "</svg>", _line_legend(curves) if len(curves) > 1 else ""])


def stacked(rows: Sequence[tuple[str, Mapping[str, float]]], *, unit: str, categories: Sequence[str]) -> str:
    """Horizontal bars, one a row, made of categories in their order; with a legend of those that occur."""
    total = max((sum(parts.values()) for _, parts in rows), default=0.0)
    if total <= 0:
        return ""
    lane, left, right = 26, 150, 66
    scale = (BAR_WIDTH - left - right) / total
    height = lane * len(rows) + 4
    parts = [
        f'<svg class="chart" viewBox="0 0 {BAR_WIDTH} {height}" role="img" aria-label="breakdown by rank">'
    ]
    for number, (name, values) in enumerate(rows):
        x, y = float(left), lane * number + 2
        parts.append(
            f'<text class="label" x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
        )
        for category in categories:
            value = values.get(category, 0.0)
            if value * scale >= 0.05:
                share = 100 * value / sum(values.values())
                tip = f"{escape(name)}: {category} {value:.3g} {unit} ({share:.1f}%)"
                look = f'class="bar {slug(category)}" x="{x:.2f}" y="{y}"'
                size = f'width="{value * scale:.2f}" height="{lane - 6}"'
                parts.append(f"<rect {look} {size}><title>{tip}</title></rect>")
                x += value * scale
        whole = f"{sum(values.values()):.3g} {unit}"
        parts.append(f'<text class="tick" x="{x + 6:.1f}" y="{y + 15}">{whole}</text>')
    used = [one for one in categories if any(values.get(one, 0.0) * scale >= 0.05 for _, values in rows)]
    keys = "".join(f'<span class="key"><i class="{slug(one)}"></i>{one}</span>' for one in used)
    return "\n".join([*parts, "</svg>", f'<p class="legend">{keys}</p>'])


def matrix(names: Sequence[str], values: Sequence[Sequence[float]], texts: Sequence[Sequence[str]]) -> str:
    """A table whose cells are shaded by their value; rows send, columns receive."""
    most = max((value for row in values for value in row), default=0.0)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for name, row, written in zip(names, values, texts, strict=True):
        cells = "".join(
            f'<td style="--share:{(math.sqrt(value / most) if most else 0):.2f}">{escape(text)}</td>'
            for value, text in zip(row, written, strict=True)
        )
        rows.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f'<table class="matrix"><tr><th>from \\ to</th>{head}</tr>{"".join(rows)}</table>'


def _line_legend(curves: Sequence[Line]) -> str:
    keys = "".join(
        f'<span class="key"><i class="line-key s{curve.style % 6}{" dashed" if curve.dashed else ""}"></i>'
        f"{escape(curve.name)}</span>"
        for curve in curves
    )
    return f'<p class="legend">{keys}</p>'


def _names(curves: Sequence[Line]) -> str:
    return escape(", ".join(curve.name for curve in curves), quote=True)


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Few enough points for a small page; the last one stays."""
    if len(points) <= MOST_POINTS:
        return points
    step = len(points) / MOST_POINTS
    return [*(points[int(number * step)] for number in range(MOST_POINTS)), points[-1]]


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that span an interval."""
    if high <= low:
        low, high = low - (abs(low) or 1) * 0.1, high + (abs(high) or 1) * 0.1
    raw = (high - low) / 4
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]
