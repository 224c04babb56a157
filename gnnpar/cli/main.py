"""`gnnpar`: picks the subcommand's module and turns errors into messages and exit codes.

Exit codes: 0 done, 1 a run failed, 2 a mistake in what was given, 130 interrupted.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence

from gnnpar.config.suggest import nearest
from gnnpar.errors import InputError, RunError

__all__ = ["entry", "main"]

COMMANDS = {
    "train": "train a model and print a summary",
    "sweep": "train for every combination of choices, several at a time",
    "results": "tables and plots of many runs, mean and deviation over seeds",
    "partition": "cut a graph into chunks and report how good the cut is",
    "data": "list, describe, convert and fetch datasets",
    "analyze": "work, depth, bytes, memory and kind of a run, before anything runs",
    "report": "write a page about a run, or several side by side",
    "simulate": "draw when each rank would do what, without starting one",
    "systems": "compare all schedules",
    "doctor": "check this machine and what is installed",
}
"""Subcommands: each is `main(argv) -> int` in the module of its name, imported only when asked for."""

USAGE = """usage: gnnpar COMMAND [GROUP=NAME …] [KEY=VALUE …]

Train deep graph neural networks in parallel: layers in pipeline stages, vertices in chunks.

{commands}

`gnnpar COMMAND --help` tells more; docs/configuration.md lists all keys.
"""


def main(argv: Sequence[str]) -> int:
    """Run `gnnpar argv…`; the exit code. Mistakes and failed runs are printed, without a traceback."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print(
            USAGE.format(commands="\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())),
            end="",
        )
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        print(importlib.metadata.version("gnnpar"))
        return 0
    first = _is_first()
    try:
        _show_log(first)
        return _command(argv[0])(list(argv[1:]))
    except InputError as error:
        if first:
            print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def entry() -> None:
    """The console script."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has had enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        code = 1
    sys.exit(code)


def _command(name: str) -> Callable[[list[str]], int]:
    if name not in COMMANDS:
        raise InputError(
            "gnnpar",
            [f"there is no command {name!r}; choose one of {', '.join(COMMANDS)}{nearest(name, COMMANDS)}"],
        )
    command: Callable[[list[str]], int] = importlib.import_module(f"gnnpar.cli.{name}").main
    return command


def _is_first() -> bool:
    """True for the process that speaks to the user; false for the others of torchrun and srun."""
    if not {"RANK", "SLURM_PROCID"} & os.environ.keys():
        return True  # without the import, which brings torch
    from gnnpar.dist.launched import is_first_process

    return is_first_process()


def _show_log(first: bool) -> None:
    """Library loggers speak here alone: information from the first process, warnings from all."""
    root = logging.getLogger("gnnpar")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.addFilter(lambda record: not record.name.endswith(".rank"))  # see gnnpar.dist.launched.open_log
    root.handlers = [handler]
    root.setLevel(logging.INFO if first else logging.WARNING)
    root.propagate = False
