"""`Finished`: the runs that the accuracy table is made of, one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.experiments.accuracy_cases import Run

__all__ = ["Finished"]

KEPT = (
    *("test_accuracy", "val_accuracy", "train_accuracy", "best_epoch", "num_epochs"),
    *("history_read_share", "history_age_mean", "total_time_s", "epoch_time_s", "cpu_s"),
    *("cut_share", "test_accuracy_cut"),
)


@dataclass(frozen=True)
class Finished:
    """Results by run. A line is added as soon as a run ends, so that several scripts may share the file.

    Attributes:
        path: of the file. results: what `KEPT` names of each summary, by `Run.key`.
    """

    path: Path
    results: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Finished:
        lines = path.read_text().splitlines() if path.exists() else []
        results = [json.loads(line) for line in lines]
        return cls(path, {result["run"]: result for result in results})

    def __contains__(self, run: Run) -> bool:
        return run.key in self.results

    def __getitem__(self, run: Run) -> dict[str, Any]:
        return self.results[run.key]

    def add(self, run: Run, summary: dict[str, Any]) -> None:
        result = {"run": run.key} | {key: summary[key] for key in KEPT if key in summary}
        self.results[run.key] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
