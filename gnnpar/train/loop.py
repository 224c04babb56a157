"""The training loop of one rank: epochs, evaluation, best parameters, early stopping, summary."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gnnpar.config.schema import RunConfig
from gnnpar.schedule import Costs, simulate
from gnnpar.train.early_stop import EarlyStop
from gnnpar.train.evaluation import Scores
from gnnpar.train.memory import peak_memory_bytes
from gnnpar.train.trainer import StepResult, Trainer

logger = logging.getLogger("gnnpar.train.rank")

__all__ = ["Epoch", "Outcome", "number_or_null", "train_loop"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """What is logged of one epoch.

    Attributes:
        scores: where it was evaluated.
        best_val: validation metric of the best epoch so far; NaN before there is one.
    """

    number: int
    step: StepResult
    scores: Scores | None
    best_val: float

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "epoch": self.number,
            "train_loss": self.step.loss,
            "epoch_time_s": self.step.seconds,
            "history_age": self.step.history_age,
            "history_age_max": self.step.history_age_max,
            "history_read_share": self.step.history_share,
        }
        if self.scores is not None:
            row |= {
                "metric": self.scores.metric,
                "train_metric": number_or_null(self.scores.train),
                "val_metric": number_or_null(self.scores.val),
                "test_metric": number_or_null(self.scores.test),
                "val_loss": number_or_null(self.scores.val_loss),
            }
            if self.scores.history_error is not None:
                row["history_error"] = self.scores.history_error
        return row


def number_or_null(value: Any) -> Any:
    """A score that does not exist (NaN: its mask is empty) as JSON can write it."""
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True)
class Outcome:
    """Result of a run on one rank; all but `best_state` is the same on every rank."""

    summary: dict[str, Any]
    best_state: dict[str, Tensor]


@dataclass
class _Tally:
    """What this rank adds up over the epochs."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    eval_seconds: list[float] = field(default_factory=list)
    age_reads: float = 0.0
    reads: float = 0.0
    age_max: int = 0
    chunked_steps: int = 0
    bytes_per_epoch: dict[str, int] = field(default_factory=dict)
    halo_bytes: int = 0
    rows_by_age: Counter[int] = field(default_factory=Counter)

    def add(self, result: StepResult, cpu_seconds: float, trainer: Trainer) -> None:
        self.seconds.append(result.seconds)
        self.cpu_seconds.append(cpu_seconds)
        self.waits.append(trainer.recorder.seconds["wait"])
        self.bytes_per_epoch = trainer.recorder.bytes_by_kind()
        if not trainer.policy.is_exact(trainer.step - 1):
            self.chunked_steps += 1
            self.reads += result.history_share
            self.age_reads += result.history_share * result.history_age
            self.age_max = max(self.age_max, result.history_age_max)
            self.halo_bytes += self.bytes_per_epoch.get("halo", 0)
            self.rows_by_age.update(trainer.recorder.rows_by_age)


def train_loop(trainer: Trainer, config: RunConfig, on_epoch: Callable[[Epoch], None]) -> Outcome:
    """Train for `train.num_epochs` epochs; `on_epoch` is called after every one.

    Evaluates every `train.eval_every` epochs and after the last; keeps the parameters of the best
    validation score (`train.select`). Raises `RunError` where the loss is not finite or a peer is lost.
    """
    tally = _Tally()
    stop = EarlyStop(config.train.patience)
    best_state: dict[str, Tensor] = {}
    best: Scores | None = None
    start = time.perf_counter()
    for number in range(1, config.train.num_epochs + 1):
        trainer.recorder.start_epoch(number)
        cpu_start = time.process_time()
        result = trainer.train_epoch()
        tally.add(result, time.process_time() - cpu_start, trainer)
        scores = None
        if number % config.train.eval_every == 0 or number == config.train.num_epochs:
            scores = trainer.evaluate()
            tally.eval_seconds.append(scores.seconds)
            logger.info(
                "epoch %d: loss %.6g; %s: train %.4f, validation %.4f, test %.4f; evaluated in %.3g s",
                number,
                result.loss,
                scores.metric,
                scores.train,
                scores.val,
                scores.test,
                scores.seconds,
            )
            if stop.update(number, -scores.val_loss if config.train.select == "loss" else scores.val):
                best = scores
                best_state = {name: value.cpu().clone() for name, value in trainer.state().items()}
        on_epoch(Epoch(number, result, scores, best.val if best else math.nan))
        if stop.should_stop(number):
            break
    trainer.recorder.end_epoch()
    assert best is not None
    summary = {
        "metric": config.train.metric,
        "test_accuracy": best.test,
        "val_accuracy": best.val,
        "train_accuracy": best.train,
        "best_epoch": stop.best_epoch,
        "num_epochs": number,
        "total_time_s": time.perf_counter() - start,
        **_across_ranks(trainer, tally),
    }
    if scores is not None and scores.history_error is not None:
        summary["history_error"] = scores.history_error
    return Outcome(summary, best_state)


def _across_ranks(trainer: Trainer, tally: _Tally) -> dict[str, Any]:
    """Times, bytes, bubble, ages and memory of all ranks together."""
    # The first epochs compile kernels and fill caches; the median passes over them.
    mine = {
        "epoch": statistics.median(tally.seconds),
        "cpu": statistics.median(tally.cpu_seconds),
        "eval": statistics.median(tally.eval_seconds),
        "wait": statistics.median(w / s for w, s in zip(tally.waits, tally.seconds, strict=True)),
        "bytes": tally.bytes_per_epoch,
        "halo_bytes": tally.halo_bytes,
        "rows_by_age": dict(tally.rows_by_age),
        "memory": peak_memory_bytes(trainer.context.device),
    }
    ranks = trainer.context.gather_objects(mine, "gathering the summary")
    kinds = sorted({kind for rank in ranks for kind in rank["bytes"]} | {"stage", "halo", "weight"})
    rows: Counter[int] = Counter()
    for rank in ranks:
        rows.update(rank["rows_by_age"])
    return {
        "epoch_time_s": max(rank["epoch"] for rank in ranks),
        "epoch_cpu_s": [rank["cpu"] for rank in ranks],
        "eval_time_s": max(rank["eval"] for rank in ranks),
        "bytes_per_epoch": {kind: sum(rank["bytes"].get(kind, 0) for rank in ranks) for kind in kinds},
        "bubble": statistics.mean(rank["wait"] for rank in ranks),
        "bubble_theory": simulate(trainer.schedule, Costs(F=1, B=2, I=1, W=1)).bubble,
        "history_age_mean": tally.age_reads / tally.reads if tally.reads else 0.0,
        "history_age_max": tally.age_max,
        "history_read_share": tally.reads / tally.chunked_steps if tally.chunked_steps else 0.0,
        # Where rows are sampled or skipped, the last epoch says little.
        "halo_bytes_mean": sum(rank["halo_bytes"] for rank in ranks) / max(1, tally.chunked_steps),
        "halo_age_mean": sum(age * count for age, count in rows.items()) / max(1, rows.total()),
        "halo_age_max": max(rows, default=0),
        "peak_memory_bytes": [rank["memory"] for rank in ranks],
        "layers_per_stage": trainer.layers_per_stage,
        "num_parameters": trainer.num_parameters,
    }
