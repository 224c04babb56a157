"""What a user sees of a running sweep: a live table on a terminal, else a line for each job that ends."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnpar.study.sweep import Board, Outcome

__all__ = ["last_metrics", "open_board"]

SHOWN = 12
"""Rows of the live table; those that run come first."""


@contextmanager
def open_board(total: int) -> Iterator[Board]:
    """The board for standard error, as it is."""
    if not sys.stderr.isatty():
        yield _Lines(total)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield _Table(total, live)


def last_metrics(run_dir: str) -> dict[str, Any]:
    """The last complete line of a run's `metrics.jsonl`; empty where there is none yet."""
    try:
        with (Path(run_dir) / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        return row if isinstance(row, dict) else {}
    return {}


def scores(outcome: Outcome) -> str:
    """Validation and test of a finished job; where it ended if it failed."""
    if outcome.state in ("finished", "found"):
        try:
            summary = json.loads((Path(outcome.run_dir) / "summary.json").read_text())
            values = {"validation": summary["val_accuracy"], "test": summary["test_accuracy"]}
        except (OSError, ValueError, KeyError):
            return "no summary"
        return ", ".join(f"{name} {100 * value:.2f}%" for name, value in values.items() if value is not None)
    if outcome.state == "failed":
        last = next((line for line in reversed(outcome.said) if line.strip()), "it printed nothing")
        return f"exit code {outcome.exit_code}: {last.strip()}"
    return ""


class _Lines:
    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0
        self.first = True

    def update(self, outcomes: Sequence[Outcome]) -> None:
        if self.first:
            self.first = False
            self.count = sum(outcome.state == "found" for outcome in outcomes)
            if self.count:
                self._print(f"{self.count} of {self.total} jobs are finished already")

    def ended(self, outcome: Outcome) -> None:
        self.count += 1
        said = scores(outcome)
        self._print(
            f"[{self.count}/{self.total}] {outcome.state}: {outcome.label}, {outcome.seconds:.0f} s"
            + (f"; {said}" if said else "")
        )

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class _Table:
    """Redrawn twice a second by the sweep itself: no thread beside the one that starts processes."""

    def __init__(self, total: int, live: Any) -> None:
        self.total, self.live, self.drawn = total, live, 0.0
        self.recent: list[Outcome] = []

    def ended(self, outcome: Outcome) -> None:
        self.recent.insert(0, outcome)
        if outcome.state in ("failed", "too large"):
            self.live.console.print(
                f"{outcome.state}: {outcome.label}; {scores(outcome)}", markup=False, highlight=False
            )

    def update(self, outcomes: Sequence[Outcome]) -> None:
        now = time.monotonic()
        if now >= self.drawn + 0.5:
            self.drawn = now
            self.live.update(self.table(outcomes), refresh=True)

    def table(self, outcomes: Sequence[Outcome]) -> Any:
        from rich.table import Table

        counts = Counter(outcome.state for outcome in outcomes)
        title = f"{self.total} jobs: " + ", ".join(f"{number} {state}" for state, number in counts.items())
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading in ("job", "state", "epoch", "loss", "result"):
            table.add_column(heading, overflow="ellipsis", no_wrap=True)
        running = [outcome for outcome in outcomes if outcome.state == "running"]
        for outcome in [*running, *self.recent][:SHOWN]:
            last = last_metrics(outcome.run_dir) if outcome.state == "running" else {}
            loss = f"{last['train_loss']:.4f}" if "train_loss" in last else ""
            table.add_row(outcome.label, outcome.state, str(last.get("epoch", "")), loss, scores(outcome))
        return table
