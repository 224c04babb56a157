"""Markdown of committed tables: the table, and what it depends on (command line, machine, versions)."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gnnpar.train.rundir import describe_environment, write_atomically

__all__ = ["command_line", "machine", "save", "table"]


def command_line(module: str) -> str:
    """How this script was called."""
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def machine() -> str:
    """One paragraph: CPU, cores, memory, load, versions, date."""
    env = describe_environment()
    versions = ", ".join(f"{name} {version}" for name, version in env["packages"].items() if version)
    return (
        f"Machine: {env['cpu']}, {env['cores']} cores, {env['memory_bytes'] / 2**30:.0f} GiB memory, "
        f"load average {os.getloadavg()[1]:.1f} at the end. {env['platform']}, Python {env['python']}, "
        f"{versions}. gnnpar {env['gnnpar']} at {env['git']}, {time.strftime('%Y-%m-%d')}."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, columns aligned in the source too; all but the first are right-aligned."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        return "| " + " | ".join(cells) + " |"

    return "\n".join(line(row) for row in (head, rule, *rows))


def save(path: Path, title: str, parts: Sequence[str]) -> None:
    """Write a page and print it."""
    text = f"# {title}\n\n" + "\n\n".join(parts) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    print(text)
