"""`RunRecord`: a run directory, read. Only what every run has is needed; the rest is there or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnpar.errors import Faults, InputError
from gnnpar.schedule import Schedule
from gnnpar.trace import Log, read_log

__all__ = ["RunRecord", "read_runs"]

_NEEDED = ("config.yaml", "command.txt", "env.json")


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        config: as in `config.yaml`.
        environment: as in `env.json`.
        epochs: one row of `metrics.jsonl` each.
        summary: empty where the run has not ended.
        logs: events by rank; empty where the run was not traced.
        schedule: of a step (with `logs`).
        twice: the same with twice the micro-batches, if the family has it.
        about: its layers and chunks (with `logs`).
        notes: what is missing, for the reader.
    """

    folder: Path
    config: dict[str, Any]
    command: str
    environment: dict[str, Any]
    epochs: list[dict[str, Any]]
    summary: dict[str, Any]
    logs: list[Log]
    schedule: Schedule | None
    twice: Schedule | None
    about: dict[str, Any]
    notes: list[str]

    @cached_property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.absolute().name

    def key(self, dotted: str) -> Any:
        """A value of the configuration, None where it has none."""
        value: Any = self.config
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    @property
    def columns(self) -> list[int]:
        """The column of every rank."""
        return [int(log.about.get("column", log.rank)) for log in self.logs]


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Read runs. Raises `InputError` with the faults of all of them."""
    faults = Faults("gnnpar report")
    found = []
    for folder in folders:
        with faults.collected():
            found.append(_read(folder))
    faults.raise_if_any()
    return found


def _read(folder: Path) -> RunRecord:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(str(folder), [f"{what}; give the directory of a run, such as results/runs/…"])
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        text = f"is not the directory of a run: it has no {', '.join(missing)}"
        inside = sorted(one.name for one in folder.iterdir() if (one / "config.yaml").is_file())
        hint = f"; did you mean {folder / inside[-1]}?" if inside else ""
        raise InputError(str(folder), [text + hint])
    notes: list[str] = []
    summary = _json(folder / "summary.json") if (folder / "summary.json").is_file() else {}
    if not summary:
        notes.append(
            "The run has not ended, or was cut off: there is no summary; what it had written is shown."
        )
    epochs = _rows(folder / "metrics.jsonl", notes)
    logs = [read_log(path) for path in sorted((folder / "trace").glob("rank*.events"))]
    logs.sort(key=lambda log: log.rank)
    if any(log.cut for log in logs):
        notes.append("A trace ends in the middle of an event; its complete epochs are shown.")
    ranks = [log.rank for log in logs]
    if ranks != list(range(len(ranks))):
        raise InputError(str(folder), [f"trace: there are events of ranks {ranks} only; copy all of them"])
    if not logs:
        notes.append("Not traced: run with trace.enabled=true for timeline, breakdown and bytes by rank.")
    return RunRecord(
        folder=folder,
        config=_yaml(folder / "config.yaml"),
        command=(folder / "command.txt").read_text(encoding="utf-8").strip(),
        environment=_json(folder / "env.json"),
        epochs=epochs,
        summary=summary,
        logs=logs,
        schedule=_schedule(folder / "trace" / "schedule.txt"),
        twice=_schedule(folder / "trace" / "twice.txt"),
        about=_json(folder / "trace" / "about.json") if (folder / "trace" / "about.json").is_file() else {},
        notes=notes,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as JSON ({error}); was it cut off?"]) from None
    if not isinstance(value, dict):
        raise InputError(str(path), ["holds no JSON object"])
    return value


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        line = str(error).strip().splitlines()[0]
        raise InputError(str(path), [f"cannot be read as YAML ({line}); was it cut off?"]) from None
    if not isinstance(value, dict):
        raise InputError(str(path), ["is empty; was it cut off?"])
    return value


def _rows(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """One object a line; the last one may be cut off."""
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise InputError(str(path), [f"line {number} is not JSON"]) from None
            notes.append(f"{path.name} ends in the middle of a line; the lines before it are shown.")
    return rows


def _schedule(path: Path) -> Schedule | None:
    return Schedule.from_text(path.read_text(encoding="utf-8")) if path.is_file() else None
