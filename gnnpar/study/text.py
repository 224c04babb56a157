"""Groups of runs as a table: Markdown, CSV, LaTeX and plain data."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnpar.study.groups import Group, Spread, telling_keys

__all__ = ["Table", "as_csv", "as_data", "as_latex", "as_markdown", "make_table"]


@dataclass(frozen=True)
class Table:
    """Texts of a table with one row a group.

    Attributes:
        align: `l` or `r` by column. commands: by row.
        notes: what a reader should know, a sentence each.
    """

    title: str
    headings: tuple[str, ...]
    align: str
    rows: tuple[tuple[str, ...], ...]
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def make_table(groups: Sequence[Group], memory_text: Callable[[float], str]) -> Table:
    """The table of some groups, at least one; columns of keys only where groups differ in them.

    Args:
        memory_text: bytes as a reader likes them.
    """
    keys = telling_keys(groups)
    metrics = list(dict.fromkeys(one.metric for one in groups))
    names = {"accuracy": "accuracy", "rocauc": "ROC-AUC"}
    what = " or ".join(names[metric] for metric in metrics)
    figures: dict[str, Callable[[Group], str]] = {
        "runs": lambda one: str(len(one.runs)),
        "validation": lambda one: percent(one.spread("val_accuracy")),
        "test": lambda one: percent(one.spread("test_accuracy")),
        "parameters": lambda one: f"{one.num_parameters:,}",
        "ranks": lambda one: str(one.num_ranks),
        "peak memory": lambda one: memory_text(one.memory),
        "epoch": lambda one: seconds(one.spread("epoch_time_s")),
    }
    rows = [
        (*(_shown(one.keys[key]) for key in keys), *(text(one) for text in figures.values()))
        for one in groups
    ]
    first = groups[0]
    same = {
        "dataset.name": first.title,
        "system": first.keys["system"],
        "model.name": first.keys["model.name"],
    }
    common = [text for key, text in same.items() if key not in keys]
    notes = [
        f"Validation and test: {what} in percent, mean ± unbiased standard deviation over seeds, of the "
        "parameters that were best in validation. Peak memory: of all ranks together, the largest of the "
        "runs. Epoch: median of a run, mean over seeds."
    ]
    short = {one.title: one.missing_runs for one in groups if one.missing_runs}
    notes += [
        f"OGB asks for {'3' if name == 'ogbn-papers100M' else '10'} runs on {name}, with seeds from 0."
        for name in short
    ]
    return Table(
        ", ".join(common),
        (*_headings(keys), *figures),
        "".join("r" if _is_number(groups, key) else "l" for key in keys) + "r" * len(figures),
        tuple(rows),
        tuple(one.command for one in groups),
        tuple(notes),
    )


def as_markdown(table: Table) -> str:
    """A pipe table with a column of commands."""
    heads = [*table.headings, "command"]
    rules = ["---:" if letter == "r" else "---" for letter in table.align] + ["---"]
    rows = [[*row, f"`{command}`"] for row, command in zip(table.rows, table.commands, strict=True)]
    lines = [
        _pipes(heads),
        _pipes(rules),
        *(_pipes(cell.replace("|", "\\|") for cell in row) for row in rows),
    ]
    head = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*head, *lines, "", *table.notes]) + "\n"


def as_latex(table: Table) -> str:
    """A `tabular` for booktabs; the commands are comments."""
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in table.rows]
    return "\n".join(
        [
            *(f"% {note}" for note in table.notes),
            *(f"% {number}: {command}" for number, command in enumerate(table.commands, 1)),
            f"\\begin{{tabular}}{{{table.align}}}",
            r"\toprule",
            " & ".join(map(_latex, table.headings)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def as_data(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A flat mapping for each group, in fractions, seconds and bytes; NaN where unknown."""
    keys = telling_keys(groups) if groups else []
    shown = list(dict.fromkeys(["dataset.name", "system", "model.name", "model.num_layers", *keys]))
    rows = []
    for one in groups:
        row: dict[str, Any] = {key: one.keys[key] for key in shown}
        row |= {"metric": one.metric, "runs": len(one.runs), "seeds": one.seeds}
        for name, field in (
            ("val", "val_accuracy"),
            ("test", "test_accuracy"),
            ("epoch_time_s", "epoch_time_s"),
            ("total_time_s", "total_time_s"),
        ):
            found = one.spread(field)
            row |= {f"{name}_mean": found.mean, f"{name}_std": found.std}
        row |= {"parameters": one.num_parameters, "ranks": one.num_ranks, "peak_memory_bytes": one.memory}
        row |= {"command": one.command, "run_dirs": [str(run.folder) for run in one.runs]}
        rows.append(row)
    return rows


def as_csv(groups: Sequence[Group]) -> str:
    """`as_data` with a line of headings; lists are separated by spaces, what is unknown is empty."""
    rows = as_data(groups)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv(value) for key, value in row.items()})
    return text.getvalue()


def percent(spread: Spread) -> str:
    """`98.05 ± 0.21`; without the deviation where there is one run, `–` where there is no score."""
    return _with_std(100 * spread.mean, 100 * spread.std, "{:.2f}") if not math.isnan(spread.mean) else "–"


def seconds(spread: Spread) -> str:
    """`161 ± 3 ms`, `1.09 ± 0.02 s`."""
    if spread.mean < 1:
        return _with_std(1e3 * spread.mean, 1e3 * spread.std, "{:.3g}") + " ms"
    return _with_std(spread.mean, spread.std, "{:.3g}") + " s"


def _with_std(mean: float, std: float, form: str) -> str:
    return form.format(mean) if math.isnan(std) else f"{form.format(mean)} ± {form.format(std)}"


def _headings(keys: Sequence[str]) -> list[str]:
    """The last part of a key, where it is the only one of that name."""
    names = {"dataset.name": "dataset", "model.name": "model"}
    last = [names.get(key, key.rpartition(".")[2]) for key in keys]
    return [name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)]


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _is_number(groups: Sequence[Group], key: str) -> bool:
    return all(isinstance(one.keys[key], int | float) for one in groups)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex(text: str) -> str:
    for letter in "&%#_$":
        text = text.replace(letter, f"\\{letter}")
    return text.replace(" ± ", r" $\pm$ ").replace("–", "--")


def _csv(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if isinstance(value, float) and math.isnan(value) else value
