"""Tables on the terminal, and the same as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["bytes_text", "print_json", "print_pairs", "print_rows", "seconds_text"]

PIPE_WIDTH = 160


def print_json(value: Any) -> None:
    """One JSON document on standard output; not-a-number becomes null, which every reader takes."""
    print(json.dumps(_finite(value), indent=2, default=str))


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """A table of names and values."""
    print_rows(title, (), pairs, align="ll")


def print_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, align: str) -> None:
    """A table with a heading for each column, if any.

    Args:
        align: a letter for each column: `l` for text, `r` for numbers.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title or None, show_header=bool(columns), title_justify="left", box=None, pad_edge=False
    )
    for number, letter in enumerate(align):
        heading = columns[number] if columns else ""
        table.add_column(heading, justify="right" if letter == "r" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Without a terminal there is no width to keep to.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)


def seconds_text(seconds: float) -> str:
    """`12.3 s`, `45.6 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def bytes_text(count: float) -> str:
    """`512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
