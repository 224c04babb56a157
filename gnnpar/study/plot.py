"""Plots of groups of runs: validation against time, test against depth, speed-up against ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gnnpar.errors import InputError
from gnnpar.study.groups import Group, telling_keys

__all__ = ["PLOTS", "save_plot"]


def save_plot(kind: str, groups: Sequence[Group], path: Path) -> None:
    """Draw a plot of `PLOTS` into a file; its ending gives the form: svg, pdf or png.

    Raises:
        InputError: no runs or none that it is about, another ending, or a file that cannot be written.
    """
    if path.suffix not in (".svg", ".pdf", ".png"):
        raise InputError(f"plot.{kind}", [f"{path}: the name must end in .svg, .pdf or .png"])
    if not groups:
        raise InputError(f"plot.{kind}", ["there are no finished runs to draw"])
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # without pyplot: no window, nothing global

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    with rc_context({"svg.hashsalt": "gnnpar"}):  # the same runs give the same file
        PLOTS[kind](axes, groups)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        try:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, metadata=metadata, dpi=200)
        except OSError as error:
            raise InputError(f"plot.{kind}", [f"cannot write {path}: {error.strerror or error}"]) from error


def _time(axes: Any, groups: Sequence[Group]) -> None:
    labels = _labels(groups, ())
    for number, (one, label) in enumerate(zip(groups, labels, strict=True)):
        for run in one.runs:
            points = run.evaluations()
            axes.plot(
                [seconds for _, seconds, _ in points],
                [100 * value for _, _, value in points],
                color=f"C{number}",
                alpha=0.8 if len(one.runs) == 1 else 0.5,
                label=label if run is one.runs[0] else None,
            )
    axes.set(xlabel="seconds of training", ylabel=f"validation {_metric(groups)} (%)")


def _depth(axes: Any, groups: Sequence[Group]) -> None:
    if len({one.keys["model.num_layers"] for one in groups}) < 2:
        raise InputError("plot.depth", ["all runs have the same model.num_layers; sweep over it"])
    for label, line in _lines(groups, ("model.num_layers", "parallel.layers_per_stage")).items():
        line.sort(key=lambda one: one.keys["model.num_layers"])
        scores = [one.spread("test_accuracy") for one in line]
        axes.errorbar(
            [one.keys["model.num_layers"] for one in line],
            [100 * score.mean for score in scores],
            yerr=[0 if score.std != score.std else 100 * score.std for score in scores],
            marker="o",
            capsize=3,
            label=label,
        )
    axes.set_xscale("log", base=2)
    _plain_ticks(axes, sorted({one.keys["model.num_layers"] for one in groups}))
    axes.set(xlabel="layers", ylabel=f"test {_metric(groups)} (%)")


def _speedup(axes: Any, groups: Sequence[Group]) -> None:
    if len({one.num_ranks for one in groups}) < 2:
        raise InputError(
            "plot.speedup", ["all runs have the same number of ranks; sweep over parallel.stages"]
        )
    for label, line in _lines(groups, ("parallel.",)).items():
        line.sort(key=lambda one: one.num_ranks)
        base = _base(line[0], groups)
        axes.plot(
            [one.num_ranks for one in line],
            [base.spread("epoch_time_s").mean / one.spread("epoch_time_s").mean for one in line],
            marker="o",
            label=f"{label}, over {base.keys['system']} on {base.num_ranks}",
        )
    ranks = sorted({one.num_ranks for one in groups})
    axes.plot(ranks, [rank / ranks[0] for rank in ranks], color="grey", linestyle=":", label="linear")
    _plain_ticks(axes, ranks)
    axes.set(xlabel="ranks", ylabel="speed-up of an epoch")


def _base(one: Group, groups: Sequence[Group]) -> Group:
    """What a group's speed-up is over: of the same dataset and model, the fastest with the fewest ranks."""
    same = [
        other
        for other in groups
        if all(
            other.keys[key] == value
            for key, value in one.keys.items()
            if key.startswith(("dataset.", "model."))
        )
    ]
    return min(same, key=lambda other: (other.num_ranks, other.spread("epoch_time_s").mean))


def _lines(groups: Sequence[Group], without: tuple[str, ...]) -> dict[str, list[Group]]:
    """Groups by what they are called without the keys that start with one of `without`."""
    lines: dict[str, list[Group]] = {}
    for one, label in zip(groups, _labels(groups, without), strict=True):
        lines.setdefault(label, []).append(one)
    return lines


def _labels(groups: Sequence[Group], without: tuple[str, ...]) -> list[str]:
    keys = (
        [key for key in telling_keys(groups) if not key.startswith(without)]
        if without
        else telling_keys(groups)
    )
    names = ("dataset.name", "system", "model.name")
    return [
        ", ".join(
            str(one.keys[key]) if key in names else f"{key.rpartition('.')[2]}={one.keys[key]}"
            for key in keys
        )
        or str(one.keys["system"])
        for one in groups
    ]


def _metric(groups: Sequence[Group]) -> str:
    names = {"accuracy": "accuracy", "rocauc": "ROC-AUC"}
    return " or ".join(dict.fromkeys(names[one.metric] for one in groups))


def _plain_ticks(axes: Any, values: Sequence[int]) -> None:
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


PLOTS: dict[str, Callable[[Any, Sequence[Group]], None]] = {
    "time": _time,
    "depth": _depth,
    "speedup": _speedup,
}
"""Each draws groups, at least one, on matplotlib axes."""
