"""Rows of a report's tables: what a run is, and what came of it, in a reader's words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from gnnpar.config.schema import RunConfig
from gnnpar.errors import InputError
from gnnpar.report.measure import Measured
from gnnpar.report.run import RunRecord
from gnnpar.trace.attribution import CATEGORIES
from gnnpar.trace.critical import path_by_category

__all__ = [
    "breakdown_rows",
    "bytes_text",
    "headline",
    "path_rows",
    "prediction_rows",
    "seconds_text",
    "summary_rows",
    "taxonomy_rows",
    "what_if_rows",
]


def headline(run: RunRecord) -> str:
    """Model, data and system in one line."""
    layers = run.key("model.num_layers")
    data = run.key("dataset.name") or run.key("dataset.kind")
    return f"{run.key('model.name')}, {layers} layers, on {data}, {run.key('system')}"


def summary_rows(runs: Sequence[RunRecord]) -> list[list[str]]:
    """One row a fact: its name, then each run's value; rows that no run has are left out."""
    rows = [[name, *(of(run) for run in runs)] for name, of in _FACTS.items()]
    return [row for row in rows if any(row[1:])]


def taxonomy_rows(runs: Sequence[RunRecord]) -> list[list[str]]:
    """The comparison row of Besta and Hoefler's survey, turned: one line a column, then each run's cell.

    Empty where a configuration cannot be read any more.
    """
    # Imports torch, which nothing else here needs.
    from gnnpar.analysis import taxonomy_of
    from gnnpar.config.section import build

    try:
        cells = [taxonomy_of(build(RunConfig, run.config)).pairs() for run in runs]
    except InputError:
        return []
    return [[column[0][0], *(cell for _, cell in column)] for column in zip(*cells, strict=True)]


def breakdown_rows(measured: Measured) -> list[list[str]]:
    """One row a category that occurs: milliseconds of every rank, and its share of all ranks' time."""
    total = sum(rank.total for rank in measured.breakdown)
    rows = []
    for category in CATEGORIES:
        values = [rank.seconds[category] for rank in measured.breakdown]
        if sum(values) > 0:
            rows.append(
                [category, *(f"{1e3 * value:.2f}" for value in values), _percent(sum(values) / total)]
            )
    ends = [f"{1e3 * rank.total:.2f}" for rank in measured.breakdown]
    return [*rows, ["epoch", *ends, "100.0%"]]


def what_if_rows(measured: Measured) -> list[list[str]]:
    """One row a circumstance: milliseconds of the step, and against the replayed one."""
    found, prediction = measured.what_if, measured.prediction
    rows = [
        ("as measured", found.measured),
        ("run again with measured durations", found.replayed),
        ("with a network that takes no time", found.free_network),
        ("with equal stages and micro-batches", found.balanced),
    ]
    written = [[name, f"{1e3 * value:.2f}", f"{value / found.replayed:.3f}"] for name, value in rows]
    if prediction is not None and prediction.twice is not None:
        # Both simulated, so that what the simulator leaves out counts on neither side.
        share = prediction.twice / prediction.seconds[0]
        twice = f"{1e3 * found.replayed * share:.2f}"
        written.append(["with twice the chunks (simulated change)", twice, f"{share:.3f}"])
    return written


def path_rows(measured: Measured) -> list[list[str]]:
    """One row a category on the critical path: milliseconds and share of it."""
    found = path_by_category(measured.path)
    total = sum(found.values())
    return [[category, f"{1e3 * value:.2f}", _percent(value / total)] for category, value in found.items()]


def prediction_rows(measured: Measured) -> list[list[str]]:
    """One row a rank: when its last action ended, predicted and measured, and the error."""
    found = measured.prediction
    if found is None:
        return []
    pairs = zip(found.ends, found.errors, strict=True)
    return [
        [f"rank {rank}", f"{1e3 * plan:.2f}", f"{1e3 * real:.2f}", f"{100 * error:+.1f}%"]
        for rank, ((plan, real), error) in enumerate(pairs)
    ]


def seconds_text(seconds: float) -> str:
    """`12.3 s`, `45.6 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def bytes_text(count: float) -> str:
    """`512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _score(name: str) -> Any:
    def of(run: RunRecord) -> str:
        if run.summary:
            value = run.summary.get(f"{name}_accuracy")
        else:
            known = [row[f"{name}_metric"] for row in run.epochs if row.get(f"{name}_metric") is not None]
            value = known[-1] if known else None
        return "" if value is None or math.isnan(value) else f"{100 * value:.2f}%"

    return of


def _seconds(run: RunRecord) -> str:
    if "epoch_time_s" in run.summary:
        return seconds_text(run.summary["epoch_time_s"])
    known = [row["epoch_time_s"] for row in run.epochs if "epoch_time_s" in row]
    return seconds_text(statistics.median(known)) if known else ""


def _stages(run: RunRecord) -> str:
    layers = run.summary.get("layers_per_stage") or run.about.get("layers_per_stage")
    dealt = f" ({', '.join(map(str, layers))} layers)" if layers else ""
    return f"{run.key('parallel.stages')}{dealt}"


def _chunks(run: RunRecord) -> str:
    count, kind = run.key("batch.num_chunks"), str(run.key("batch.kind"))
    return f"{count} {kind.removesuffix('s') if count == 1 else kind}"


def _sent(run: RunRecord) -> str:
    sent = run.summary.get("bytes_per_epoch") or {}
    return ", ".join(f"{kind} {bytes_text(count)}" for kind, count in sent.items() if count)


def _bubble(run: RunRecord) -> str:
    if "bubble" not in run.summary:
        return ""
    return f"{_percent(run.summary['bubble'])} waiting, {_percent(run.summary['bubble_theory'])} in theory"


def _history(run: RunRecord) -> str:
    if not run.summary.get("history_read_share"):
        return ""
    age, most = run.summary["history_age_mean"], run.summary["history_age_max"]
    return f"{_percent(run.summary['history_read_share'])} of reads, age {age:.2f} on average, at most {most}"


def _halo(run: RunRecord) -> str:
    if not run.summary.get("halo_age_max"):
        return ""
    return f"age {run.summary['halo_age_mean']:.2f} on average, at most {run.summary['halo_age_max']}"


def _best(run: RunRecord) -> str:
    if not run.summary:
        return f"{len(run.epochs)} so far"
    return f"{run.summary['best_epoch']} of {run.summary['num_epochs']}"


def _memory(run: RunRecord) -> str:
    return ", ".join(map(bytes_text, run.summary.get("peak_memory_bytes", ())))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


_FACTS = {
    "model": lambda run: (
        f"{run.key('model.name')}, {run.key('model.num_layers')} × {run.key('model.hidden')}"
    ),
    "dataset": lambda run: str(run.key("dataset.name") or run.key("dataset.kind") or ""),
    "system": lambda run: str(run.key("system") or ""),
    "schedule": lambda run: str(run.key("schedule.name") or ""),
    "stages": _stages,
    "ways": lambda run: str(run.key("parallel.ways") or ""),
    "micro-batches": _chunks,
    "test": _score("test"),
    "validation": _score("val"),
    "train": _score("train"),
    "best epoch": _best,
    "epoch time, median": _seconds,
    "waiting": _bubble,
    "sent per epoch": _sent,
    "histories": _history,
    "rows of other ways": _halo,
    "peak memory by rank": _memory,
    "parameters": lambda run: f"{run.summary['num_parameters']:,}" if "num_parameters" in run.summary else "",
    "seed": lambda run: str(run.key("seed")),
}
