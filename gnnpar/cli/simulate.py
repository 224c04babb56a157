"""`gnnpar simulate`: when every rank would do what, under given costs; no process is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from shutil import get_terminal_size

from gnnpar.cli.costs import COST_KEYS, COSTS_USAGE, split_costs, whole, words
from gnnpar.cli.options import split_options, wants_help
from gnnpar.cli.table import print_pairs, print_rows
from gnnpar.config.suggest import nearest
from gnnpar.errors import Faults, InputError
from gnnpar.schedule import (
    Schedule,
    SimulationResult,
    check,
    dependencies_for,
    lower,
    simulate,
    with_reductions,
)
from gnnpar.schedule.action import COMPUTE
from gnnpar.schedule.draw import chrome, grid, svg
from gnnpar.schedule.families import FAMILIES, Family

__all__ = ["main"]

USAGE = f"""usage: gnnpar simulate schedule=NAME|FILE stages=S micro_batches=M [KEY=VALUE …] [format=json]

Draws when each rank would do what, and prints makespan, bubble, idle time and peak of micro-batches in flight
by rank, and messages. FILE is a schedule in the text form that text=FILE writes.

{COSTS_USAGE}  overlap=serial|full               parts of an overlapped pair: one after the other, or together
  messages=default|asynchronous|rendezvous|paired    written out as actions; the last two block both ranks
  batch=chunk neighbours=history gradient=accumulate|drop    refuse orders that these do not allow
  svg=FILE trace=FILE text=FILE     picture, Chrome trace for ui.perfetto.dev, the schedule itself
  chunks= waves= advance= memory= edges=0>1,1>2      options of families that have them

  gnnpar simulate schedule=zb_h1 stages=4 micro_batches=16 costs.F=1 costs.I=1 costs.W=1
  gnnpar simulate schedule=interleaved chunks=3 stages=4 micro_batches=8 format=json

Schedules: {", ".join(FAMILIES)}.
"""

CHOICES = {
    "format": ("table", "json"),
    "overlap": ("serial", "full"),
    "messages": ("default", "asynchronous", "rendezvous", "paired"),
    "schedule": (),
    "stages": (),
    "micro_batches": (),
    "svg": (),
    "trace": (),
    "text": (),
}
AXES = {"batch": "graph", "neighbours": "history", "gradient": "accumulate"}

# Beyond these a grid is no longer read, and a line a rank neither.
MOST_RANKS, MOST_ACTIONS = 32, 4096


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    options, rest = split_options(argv, CHOICES)
    faults = Faults("gnnpar simulate")
    costs, rest = split_costs(rest, faults)
    axes = dict(AXES)
    more: dict[str, str] = {}
    for argument in rest:
        key, equals, value = argument.partition("=")
        if not equals:
            faults.add(f"{argument!r} is not of the form KEY=VALUE")
        elif key in axes:
            axes[key] = value
        else:
            more[key] = value
    schedule, blocking = _schedule(options, more, faults)
    faults.raise_if_any()
    schedule = with_reductions(schedule, costs.shared_ranks(schedule.num_ranks))

    check(schedule, batch=axes["batch"], neighbours=axes["neighbours"], gradient=axes["gradient"])
    kind = options["messages"] if options["messages"] != "default" else blocking
    if kind:
        schedule = lower(schedule, matching=kind, costs=costs)
    result = simulate(
        schedule,
        costs,
        dependencies=dependencies_for(axes["batch"], axes["neighbours"], axes["gradient"]),
        overlap=options["overlap"],
        rendezvous=kind in ("rendezvous", "paired"),
    )
    _write(result, options)
    if options["format"] == "json":
        print(json.dumps(_summary(result)))
    else:
        _show(result)
    return 0


def _schedule(options: dict[str, str], more: dict[str, str], faults: Faults) -> tuple[Schedule, str]:
    """The schedule, and how its messages block by default ("" where they do not)."""
    name = options["schedule"]
    if not name:
        faults.add("schedule: is missing; name a family or a file")
    elif name not in FAMILIES:
        if Path(name).is_file():
            for key in more:
                faults.add(f"{key}: a schedule from a file takes no options")
            faults.raise_if_any()
            return Schedule.from_text(Path(name).read_text(encoding="utf-8")), ""
        faults.add(f"schedule: there is no family and no file {name!r}{nearest(name, FAMILIES)}")
    counts = []
    for key in ("stages", "micro_batches"):
        if options[key]:
            counts.append(whole(key, options[key], faults))
        else:
            faults.add(f"{key}: is missing")
    if name not in FAMILIES:
        faults.raise_if_any()
    family = FAMILIES[name]
    settings = _settings(family, more, faults)
    faults.raise_if_any()
    schedule = family(counts[0], counts[1], **settings)
    return schedule, "" if family.matching == "asynchronous" else family.matching


def _settings(family: Family, more: dict[str, str], faults: Faults) -> dict[str, object]:
    settings: dict[str, object] = {}
    for key, text in more.items():
        if key not in family.options:
            known = [*CHOICES, *AXES, *COST_KEYS, *family.options]
            faults.add(f"{key}: unknown to schedule {family.name}{nearest(key, known)}")
        elif key == "edges":
            pairs = [word.partition(">") for word in words(text)]
            if all(source.isdecimal() and target.isdecimal() for source, _, target in pairs):
                settings[key] = [(int(source), int(target)) for source, _, target in pairs]
            else:
                faults.add(f"edges: must be pairs of stages like 0>1,1>2, got {text!r}")
        else:
            numbers = words(text)
            several = text.startswith("[") or len(numbers) > 1
            if not numbers or not all(number.isdecimal() for number in numbers):
                faults.add(f"{key}: must be a whole number, got {text!r}")
            elif several and not family.takes_several(key):
                faults.add(f"{key}: must be one whole number, got {text!r}")
            else:
                values = list(map(int, numbers))
                settings[key] = values if several else values[0]
    return settings


def _summary(result: SimulationResult) -> dict[str, object]:
    schedule = result.schedule
    return {
        "schedule": schedule.name,
        "stages": schedule.num_stages,
        "ranks": schedule.num_ranks,
        "micro_batches": schedule.num_micro_batches,
        "makespan": result.makespan,
        "bubble": result.bubble,
        "idle": result.idle,
        "window_idle": result.window_idle,
        "busy": result.busy,
        "peak_in_flight": result.peak_in_flight,
        "messages": result.messages,
        "actions": [rank.texts() for rank in schedule.ranks],
    }


def _show(result: SimulationResult) -> None:
    schedule = result.schedule
    num_actions = sum(len(rank.codes) for rank in schedule.ranks)
    if num_actions <= MOST_ACTIONS and schedule.num_ranks <= MOST_RANKS:
        width = get_terminal_size().columns if sys.stdout.isatty() else 0
        computing = (bar for bar in result.timeline if bar.action.kind in COMPUTE)
        print(grid(computing, wrap=width), end="\n\n")
    print_pairs(
        "",
        [
            ("makespan", f"{result.makespan:g}"),
            ("bubble", f"{result.bubble:.4f}"),
            ("messages", str(result.messages)),
        ],
    )
    columns = ("rank", "idle", "idle inside its window", "peak in flight")
    rows = list(zip(result.idle, result.window_idle, result.peak_in_flight, strict=True))
    lines = [
        (str(rank), f"{idle:g}", f"{inside:g}", str(peak)) for rank, (idle, inside, peak) in enumerate(rows)
    ]
    if len(lines) > MOST_RANKS:
        lines = [*lines[: MOST_RANKS // 2], ("…", "", "", ""), *lines[-MOST_RANKS // 2 :]]
    print_rows("", columns, lines, align="rrrr")


def _write(result: SimulationResult, options: dict[str, str]) -> None:
    schedule = result.schedule
    counts = f"{schedule.num_ranks} ranks, {schedule.num_micro_batches} micro-batches"
    title = f"{schedule.name}, {counts}, makespan {result.makespan:g}"
    writers = {
        "svg": lambda: svg(result.timeline, title=title),
        "trace": lambda: chrome(result.timeline, unit_us=1000.0, name=title),
        "text": schedule.to_text,
    }
    for key, writer in writers.items():
        if options[key]:
            try:
                Path(options[key]).write_text(writer(), encoding="utf-8")
            except OSError as error:
                raise InputError(
                    "gnnpar simulate", [f"{key}: {options[key]} cannot be written: {error}"]
                ) from None
