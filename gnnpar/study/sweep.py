"""`run_sweep`: the jobs of a sweep in processes of their own, as many at a time as the budget allows.

A sweep may be ended and called again at any time: what is finished is found by the hash of its configuration,
what is half-finished runs again in its directory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from gnnpar.dist.launch import signals_raise
from gnnpar.study import child
from gnnpar.study.budget import Budget
from gnnpar.study.folder import SweepFolder
from gnnpar.study.grid import Job

__all__ = ["Board", "Outcome", "State", "run_sweep", "train_command"]

POLL_S = 0.1
MEMORY_S = 0.5
"""How often memory is read: a scan of all processes."""

State = Literal["waiting", "running", "finished", "found", "failed", "too large", "stopped"]


@dataclass
class Outcome:
    """What became of a job.

    Attributes:
        state: "found": an earlier sweep had finished it; "too large": it alone needs more memory than
            `sweep.memory_gb`; "stopped": by Ctrl-C or SIGTERM.
        exit_code: of its process; None where there was none.
        said: the last lines of its log, where it failed.
    """

    label: str
    overrides: tuple[str, ...]
    hash: str
    run_dir: str
    state: State = "waiting"
    seconds: float = 0.0
    exit_code: int | None = None
    said: list[str] = field(default_factory=list)


class Board(Protocol):
    """Shows a sweep while it runs."""

    def ended(self, outcome: Outcome) -> None: ...

    def update(self, outcomes: Sequence[Outcome]) -> None: ...


Command = Callable[[Job, Path, bool], Sequence[str]]
"""The command of a job, from its run directory and whether that holds a half-finished run."""


def train_command(job: Job, run_dir: Path, again: bool) -> list[str]:
    """`gnnpar train` as a user would type it."""
    place = [f"run.dir={run_dir}", *(["run.overwrite=true"] if again else [])]
    return [sys.executable, "-m", "gnnpar", "train", *job.overrides, *place, "format=json"]


def run_sweep(
    jobs: Sequence[Job],
    folder: SweepFolder,
    budget: Budget,
    board: Board,
    *,
    command: Command = train_command,
    record: dict[str, object] | None = None,
) -> list[Outcome]:
    """Run all jobs that are not finished; one that dies is recorded, and the others go on.

    Call it from the main thread. When it is interrupted (Ctrl-C, SIGTERM, SIGHUP) all processes of all jobs
    end before the exception leaves; if it is killed, the kernel ends them (Linux).

    Args:
        record: what `sweep.json` holds beside the outcomes.
    """
    return _Sweep(jobs, folder, budget, board, command, record or {}).run()


@dataclass
class _Running:
    job: Job
    process: child.Process
    start: float
    peak: int = 0


class _Sweep:
    def __init__(
        self,
        jobs: Sequence[Job],
        folder: SweepFolder,
        budget: Budget,
        board: Board,
        command: Command,
        record: dict[str, object],
    ) -> None:
        self.folder, self.budget, self.board = folder, budget, board
        self.command, self.record = command, record
        self.outcomes = {
            job.hash: Outcome(job.label, job.overrides, job.hash, str(folder.run_dir(job))) for job in jobs
        }
        self.waiting: list[Job] = []
        for job in jobs:
            if folder.finished(job):
                self.outcomes[job.hash].state = "found"
                self._learn(job, 0)
            else:
                self.waiting.append(job)
        self.running: list[_Running] = []
        self.memory_read = 0.0

    def run(self) -> list[Outcome]:
        with signals_raise():
            try:
                self._save()
                self.board.update(self._list())
                while self.waiting or self.running:
                    self._start_what_fits()
                    self._take_ended()
                    self._watch_memory()
                    self.board.update(self._list())
                    time.sleep(POLL_S)
            finally:
                child.end(one.process for one in self.running)
                for one in self.running:
                    self._close(one, "finished" if self.folder.finished(one.job) else "stopped")
                self._save()
        return self._list()

    def _list(self) -> list[Outcome]:
        return list(self.outcomes.values())

    def _save(self) -> None:
        self.folder.write_record({**self.record, "jobs": [asdict(outcome) for outcome in self._list()]})

    def _start_what_fits(self) -> None:
        for job in [*self.waiting]:
            if self.budget.fits(job, [one.job for one in self.running]):
                self.waiting.remove(job)
                self._start(job)

    def _start(self, job: Job) -> None:
        self.folder.clear(job)
        run_dir = self.folder.run_dir(job)
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.budget.threads(job))}
        command = self.command(job, run_dir, (run_dir / "config.yaml").exists())
        process = child.start(command, self.folder.log(job), environment)
        self.running.append(_Running(job, process, time.monotonic()))
        self.outcomes[job.hash].state = "running"

    def _take_ended(self) -> None:
        for one in [*self.running]:
            if one.process.poll() is not None:
                child.end([one.process])  # what it may have left in its group
                self._take(one, "finished" if self.folder.finished(one.job) else "failed")

    def _take(self, one: _Running, state: State) -> None:
        self.running.remove(one)
        self._close(one, state)
        self.board.ended(self.outcomes[one.job.hash])
        self._save()

    def _close(self, one: _Running, state: State) -> None:
        outcome = self.outcomes[one.job.hash]
        outcome.state, outcome.exit_code = state, one.process.returncode
        outcome.seconds = time.monotonic() - one.start
        if state in ("failed", "too large"):
            outcome.said = self.folder.last_lines(one.job)
        self._learn(one.job, one.peak)

    def _learn(self, job: Job, peak: int) -> None:
        """What a job held at most: as seen from here, or as its ranks report it."""
        try:
            summary = json.loads((self.folder.run_dir(job) / "summary.json").read_text())
            peak = max(peak, sum(summary["peak_memory_bytes"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no summary, or not one of ours: `gnnpar results` says so
        self.budget.ended(job, peak)

    def _watch_memory(self) -> None:
        """End the job that started last where all together hold too much; it runs alone later."""
        limit, now = self.budget.memory, time.monotonic()
        if limit is None or not self.running or now < self.memory_read + MEMORY_S:
            return
        self.memory_read = now
        held = child.tree_memory(one.process.pid for one in self.running)
        for one in self.running:
            self.budget.held[one.job.hash] = held[one.process.pid]
            one.peak = max(one.peak, held[one.process.pid])
        if sum(held.values()) <= limit:
            return
        last = self.running[-1]
        child.end([last.process])
        if len(self.running) == 1:
            self._take(last, "finished" if self.folder.finished(last.job) else "too large")
            return
        self.running.remove(last)
        self.budget.held.pop(last.job.hash, None)
        self.budget.alone.add(last.job.hash)
        self.waiting.append(last.job)
        self.outcomes[last.job.hash].state = "waiting"
