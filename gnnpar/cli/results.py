"""`gnnpar results`: what many runs have found, as a table over seeds and as plots."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gnnpar.cli.options import split_options, wants_help
from gnnpar.cli.table import bytes_text, print_json, print_rows
from gnnpar.errors import InputError

if TYPE_CHECKING:
    from gnnpar.study.runs import Found

__all__ = ["FORMATS", "main", "print_runs"]

FORMATS = ("table", "md", "csv", "latex", "json")

USAGE = """usage: gnnpar results [FOLDER …] [format=table|md|csv|latex|json] [plot.KIND=FILE …]

A table of the finished runs in and below the folders (default: results), a row for runs that differ in
their seed only: mean ± unbiased standard deviation over seeds of validation and test, parameters, ranks,
peak memory, epoch time, and the command that trains them again. Keys that differ between rows have columns
of their own. Runs that have not finished are left out, and named.

  plot.time=FILE      validation against seconds of training, a line a run
  plot.depth=FILE     test against model.num_layers, with deviations
  plot.speedup=FILE   speed-up of an epoch against ranks, over the fewest ranks on the same dataset and model

FILE ends in .svg, .pdf or .png.

  gnnpar results results/sweeps/1a2b3c4d format=md
  gnnpar results results/runs plot.depth=depth.svg
"""


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    kinds = ("time", "depth", "speedup")
    plots = {f"plot.{kind}": () for kind in kinds}
    options, folders = split_options(argv, {"format": FORMATS, **plots})
    wrong = [
        f"{word}: is neither a folder nor an option; see `gnnpar results --help`"
        for word in folders
        if _odd(word)
    ]
    if wrong:
        raise InputError("results", wrong)

    from gnnpar.study.groups import group
    from gnnpar.study.plot import save_plot
    from gnnpar.study.runs import read_runs

    found = read_runs(folders or ["results"])
    groups = group(found.runs)
    for kind in kinds:
        if options[f"plot.{kind}"]:
            save_plot(kind, groups, Path(options[f"plot.{kind}"]))
    print_runs(found, options["format"])
    return 0


def print_runs(found: Found, form: str) -> None:
    """Print a table of runs in one of `FORMATS`; what was left out goes to standard error."""
    from gnnpar.study.groups import group
    from gnnpar.study.text import as_csv, as_data, as_latex, as_markdown, make_table

    groups = group(found.runs)
    for note in found.notes:
        print(note, file=sys.stderr)
    if form == "json":
        print_json(as_data(groups))
    elif form == "csv":
        print(as_csv(groups), end="")
    elif not groups:
        print("no finished runs", file=sys.stderr)
    else:
        table = make_table(groups, bytes_text)
        if form == "md":
            print(as_markdown(table), end="")
        elif form == "latex":
            print(as_latex(table), end="")
        else:
            print_rows(table.title, table.headings, table.rows, align=table.align)
            notes = (textwrap.fill(note, 100) for note in table.notes)
            commands = (f"{number}. {command}" for number, command in enumerate(table.commands, 1))
            print("\n".join(("", *notes, "", "Row by row:", *commands)))


def _odd(word: str) -> bool:
    return not Path(word).is_dir() and ("=" in word or word.startswith("-"))
