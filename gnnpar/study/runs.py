"""`read_runs`: the finished runs below some folders."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnpar.config import RunConfig, config_hash, read_config
from gnnpar.data.lock import lock_holder
from gnnpar.errors import InputError
from gnnpar.train.rundir import LOCK, MARKS

__all__ = ["Found", "Run", "read_runs"]

NUMBERS = ("val_accuracy", "test_accuracy", "epoch_time_s", "total_time_s", "num_parameters", "best_epoch")


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        command: as it was typed.
        summary: fields of `summary.json`; null is NaN.
    """

    folder: Path
    config: RunConfig
    command: tuple[str, ...]
    summary: dict[str, Any]

    @property
    def num_ranks(self) -> int:
        return len(self.summary["peak_memory_bytes"])

    @property
    def memory(self) -> int:
        """Peak of all ranks together, in bytes."""
        return sum(self.summary["peak_memory_bytes"])

    def evaluations(self) -> list[tuple[int, float, float]]:
        """(epoch, seconds of training until then, validation metric) wherever it was evaluated.

        Raises `InputError` where `metrics.jsonl` is missing or damaged.
        """
        points, seconds, path = [], 0.0, self.folder / "metrics.jsonl"
        try:
            for line in path.read_text().splitlines():
                row = json.loads(line)
                seconds += row["epoch_time_s"]
                if row.get("val_metric") is not None:
                    points.append((int(row["epoch"]), seconds, float(row["val_metric"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError("results", [f"{path}: cannot be read ({error!r})"]) from error
        return points


@dataclass(frozen=True)
class Found:
    """What some folders hold.

    Attributes:
        notes: what was left out, a line each.
    """

    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def read_runs(folders: Sequence[str | Path]) -> Found:
    """Runs in and below the folders, in the order of their directories.

    Runs that have not finished, and such as cannot be read, are left out with a note. Of several runs of one
    configuration, seed included, the one that finished last counts: they are no independent samples.

    Raises:
        InputError: a folder that is not there.
    """
    missing = [f"{folder}: there is no such folder" for folder in folders if not Path(folder).is_dir()]
    if missing:
        raise InputError("results", missing)
    runs: dict[str, Run] = {}
    notes, repeated = [], 0
    for folder in dict.fromkeys(path for given in folders for path in _run_dirs(Path(given).resolve())):
        try:
            run = _read(folder)
        except _Unfinished as reason:
            notes.append(f"left out {folder}: {reason}")
            continue
        key = config_hash(run.config)
        if key in runs:
            repeated += 1
            if _finished_at(folder) < _finished_at(runs[key].folder):
                continue
        runs[key] = run
    if repeated:
        notes.append(
            f"left out {repeated} that repeat a run of the same configuration and seed; the last counts"
        )
    return Found(tuple(runs.values()), tuple(notes))


class _Unfinished(Exception):
    """Why a directory holds no run that counts."""


def _run_dirs(folder: Path) -> Iterator[Path]:
    """Run directories, not looked into further; hidden ones are being made, or were never finished."""
    for path, inner, files in os.walk(folder):
        if set(MARKS) <= {*files}:
            inner.clear()
            yield Path(path)
        else:
            inner[:] = sorted(name for name in inner if not name.startswith("."))


def _read(folder: Path) -> Run:
    path = folder / "summary.json"
    if not path.exists():
        holder = lock_holder(folder / LOCK)
        raise _Unfinished(f"it still runs ({holder})" if holder else "it has not finished: no summary.json")
    try:
        written = json.loads(path.read_text())
        summary: dict[str, Any] = {key: math.nan if one is None else one for key, one in written.items()}
        numbers = [*(summary[key] for key in NUMBERS), *summary["peak_memory_bytes"]]
        if len(numbers) == len(NUMBERS) or not all(isinstance(one, int | float) for one in numbers):
            raise _Unfinished("summary.json is not one of a run")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _Unfinished(f"summary.json cannot be read ({error!r})") from error
    try:
        config = read_config(folder / "config.yaml")
        command = tuple(shlex.split((folder / "command.txt").read_text()))
    except (InputError, OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise _Unfinished(f"its configuration is not one of this version ({text})") from error
    return Run(folder, config, command, summary)


def _finished_at(folder: Path) -> float:
    return (folder / "summary.json").stat().st_mtime


def drop_keys(words: Iterable[str], keys: Iterable[str]) -> list[str]:
    """A command without its overrides of some keys."""
    starts = tuple(f"{key}=" for key in keys)
    return [word for word in words if not word.startswith(starts)]
