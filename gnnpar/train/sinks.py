"""Where a run's epochs are written: one object per medium, all with `epoch` and `close`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Protocol

from gnnpar.config.schema import RunConfig
from gnnpar.train.loop import Epoch

__all__ = ["Sink", "open_sinks"]


class Sink(Protocol):
    """Receives every epoch of a run."""

    def epoch(self, epoch: Epoch) -> None: ...

    def close(self) -> None: ...


def open_sinks(config: RunConfig, run_dir: Path) -> list[Sink]:
    """Sinks of rank 0: `metrics.jsonl`, TensorBoard where asked for, and a progress bar on a terminal."""
    sinks: list[Sink] = [_Metrics(run_dir / "metrics.jsonl")]
    if config.trace.tensorboard:
        sinks.append(_TensorBoard(run_dir / "tensorboard"))
    if sys.stderr.isatty():
        sinks.append(_Bar(config.train.num_epochs))
    return sinks


class _Metrics:
    """One JSON object a line, flushed at once, so that a killed run keeps what it had."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    def epoch(self, epoch: Epoch) -> None:
        self.file.write(json.dumps(epoch.to_json()) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class _TensorBoard:
    """Scalars `loss/{train,val}`, `metric/{train,val,test}`, `time/epoch_s`, `history/age`."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder))

    def epoch(self, epoch: Epoch) -> None:
        add = self.writer.add_scalar
        add("loss/train", epoch.step.loss, epoch.number)
        add("time/epoch_s", epoch.step.seconds, epoch.number)
        add("history/age", epoch.step.history_age, epoch.number)
        if epoch.scores is not None:
            for name in ("train", "val", "test"):
                add(f"metric/{name}", getattr(epoch.scores, name), epoch.number)
            add("loss/val", epoch.scores.val_loss, epoch.number)

    def close(self) -> None:
        self.writer.close()


class _Bar:
    """One live line on standard error."""

    def __init__(self, num_epochs: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.progress.add_task("epoch", total=num_epochs, state="")
        self.progress.start()

    def epoch(self, epoch: Epoch) -> None:
        state = f"loss {epoch.step.loss:.4f}"
        if not math.isnan(epoch.best_val):
            state += f"  best validation {epoch.best_val:.4f}"
        self.progress.update(self.task, advance=1, state=state)

    def close(self) -> None:
        self.progress.stop()
