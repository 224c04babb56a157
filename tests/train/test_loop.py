"""The loop around the steps: when it evaluates, what it keeps, when it stops, what it sums up."""

import math
from types import SimpleNamespace

import pytest
import torch
from runtime.cases import make_config, make_trainer

from gnnpar.config.schema import TrainConfig
from gnnpar.dist import Context
from gnnpar.schedule.families.gpipe import FAMILY as gpipe
from gnnpar.trace import Recorder
from gnnpar.train.evaluation import Scores
from gnnpar.train.loop import train_loop
from gnnpar.train.trainer import StepResult

KEYS = {
    "metric",
    "test_accuracy",
    "val_accuracy",
    "train_accuracy",
    "best_epoch",
    "num_epochs",
    "total_time_s",
    "epoch_time_s",
    "epoch_cpu_s",
    "eval_time_s",
    "bytes_per_epoch",
    "bubble",
    "bubble_theory",
    "history_age_mean",
    "history_age_max",
    "history_read_share",
    "halo_bytes_mean",
    "halo_age_mean",
    "halo_age_max",
    "peak_memory_bytes",
    "layers_per_stage",
    "num_parameters",
}


class Scripted:
    """A trainer whose validation scores are given; its parameter holds the number of steps taken."""

    def __init__(self, scores, *, losses=None, ages=(0, 1, 2), shares=(0.0, 0.5, 0.25), warmup=1):
        self.scores, self.ages, self.shares = scores, ages, shares
        self.losses = losses or {epoch: 1 - score for epoch, score in scores.items()}
        self.step = 0
        self.recorder = Recorder()
        self.evaluated = []
        self.value = torch.zeros(1)
        self.policy = SimpleNamespace(is_exact=lambda step: step < warmup)
        self.context = Context.single()
        self.schedule = gpipe(1, 4)
        self.layers_per_stage, self.num_parameters = [3], 1

    def train_epoch(self):
        at = min(self.step, len(self.ages) - 1)
        self.recorder.count_bytes("stage", 1, 10 * (self.step + 1))
        self.recorder.seconds["wait"] += 0.25
        self.step += 1
        self.value += 1
        age = self.ages[at]
        return StepResult(1.0 / self.step, age, self.shares[at], 0.5 + self.step, age)

    def evaluate(self):
        self.evaluated.append(self.step)
        self.recorder.count_bytes("evaluation", 1, 1)
        val = self.scores[self.step]
        return Scores(0.1, val, val / 2, self.losses[self.step], 0.125)

    def state(self):
        return {"decoder.bias": self.value}


def run(scores, losses=None, **train):
    trainer = Scripted(scores if isinstance(scores, dict) else dict(enumerate(scores, 1)), losses=losses)
    epochs = []
    config = make_config(train=TrainConfig(**train))
    return train_loop(trainer, config, epochs.append), trainer, epochs


def test_every_interval_and_the_last_epoch_are_evaluated():
    scores = {4: 0.1, 8: 0.3, 10: 0.2}
    outcome, trainer, epochs = run(scores, num_epochs=10, eval_every=4)
    assert trainer.evaluated == [4, 8, 10]
    assert [epoch.number for epoch in epochs] == list(range(1, 11))
    assert [epoch.number for epoch in epochs if epoch.scores is not None] == [4, 8, 10]
    assert outcome.summary["best_epoch"] == 8 and outcome.summary["num_epochs"] == 10


def test_a_short_run_is_evaluated_once_at_its_end():
    outcome, trainer, _ = run({2: 0.5}, num_epochs=2, eval_every=5)
    assert trainer.evaluated == [2] and outcome.summary["best_epoch"] == 2


def test_the_parameters_kept_are_those_of_the_best_epoch():
    outcome, trainer, _ = run([0.1, 0.6, 0.3, 0.6, 0.2], num_epochs=5, eval_every=1)
    assert outcome.best_state["decoder.bias"].item() == 2.0  # the first of equals, and a copy
    assert trainer.value.item() == 5.0
    summary = outcome.summary
    assert (summary["best_epoch"], summary["val_accuracy"], summary["test_accuracy"]) == (2, 0.6, 0.3)


def test_it_stops_when_patience_has_run_out():
    outcome, trainer, epochs = run([0.5, 0.4, 0.3, 0.9, 0.9], num_epochs=5, eval_every=1, patience=2)
    assert trainer.step == 3 and len(epochs) == 3
    assert outcome.summary["num_epochs"] == 3 and outcome.summary["best_epoch"] == 1


def test_the_lowest_validation_loss_can_choose_the_epoch():
    losses = {1: 0.9, 2: 0.8, 3: 0.5, 4: 0.6, 5: 0.7, 6: 0.1}
    outcome, _, epochs = run(
        [0.1, 0.6, 0.3, 0.6, 0.2, 0.1], losses, num_epochs=6, eval_every=1, select="loss", patience=2
    )
    summary = outcome.summary
    assert (summary["best_epoch"], summary["val_accuracy"], summary["num_epochs"]) == (3, 0.3, 5)
    assert outcome.best_state["decoder.bias"].item() == 3.0
    assert epochs[-1].best_val == 0.3  # the metric of the epoch that was chosen


def test_without_validation_vertices_the_latest_epoch_is_the_best_and_nothing_stops():
    outcome, trainer, _ = run([math.nan] * 4, num_epochs=4, eval_every=1, patience=1)
    assert trainer.step == 4 and outcome.summary["best_epoch"] == 4
    assert outcome.best_state["decoder.bias"].item() == 4.0


def test_the_summary_is_complete_and_adds_up():
    outcome, _, _ = run({2: 0.4, 3: 0.5}, num_epochs=3, eval_every=2)
    summary = outcome.summary
    assert summary.keys() == KEYS
    assert summary["epoch_time_s"] == 2.5  # median of 1.5, 2.5, 3.5
    assert len(summary["epoch_cpu_s"]) == 1 and summary["epoch_cpu_s"][0] >= 0
    assert summary["eval_time_s"] == 0.125
    assert summary["bytes_per_epoch"]["stage"] == 30 and summary["bytes_per_epoch"]["halo"] == 0
    assert summary["bytes_per_epoch"]["weight"] == 0
    assert summary["bubble"] == 0.25 / 2.5
    assert summary["bubble_theory"] == 0.0
    assert summary["history_age_max"] == 2
    assert summary["history_age_mean"] == pytest.approx((1 * 0.5 + 2 * 0.25) / 0.75)  # a mean over reads
    assert summary["history_read_share"] == pytest.approx(0.375)  # of chunked steps; warm-up is exact
    assert summary["peak_memory_bytes"][0] > 1 << 20 and len(summary["peak_memory_bytes"]) == 1


def test_bytes_of_an_epoch_do_not_include_evaluation():
    outcome, _, _ = run([0.1, 0.2], num_epochs=2, eval_every=1)
    assert outcome.summary["bytes_per_epoch"] == {"stage": 20, "halo": 0, "weight": 0}


def test_rows_of_metrics_have_scores_where_evaluated():
    _, _, epochs = run({2: 0.4, 3: 0.5}, num_epochs=3, eval_every=2)
    rows = [epoch.to_json() for epoch in epochs]
    always = {"epoch", "train_loss", "epoch_time_s", "history_age", "history_age_max", "history_read_share"}
    assert rows[0].keys() == always
    assert rows[1].keys() == always | {"metric", "train_metric", "val_metric", "test_metric", "val_loss"}
    assert rows[1]["epoch"] == 2 and rows[1]["train_loss"] == 0.5 and rows[1]["val_metric"] == 0.4


def test_a_real_trainer_reaches_the_same_end():
    config = make_config({"dropout": 0.0}, train=TrainConfig(num_epochs=20, lr=0.1, eval_every=3))
    trainer = make_trainer(config)
    seen = []
    outcome = train_loop(trainer, config, seen.append)
    assert outcome.summary.keys() == KEYS
    assert [epoch.number for epoch in seen if epoch.scores] == [3, 6, 9, 12, 15, 18, 20]
    best = max((epoch for epoch in seen if epoch.scores), key=lambda epoch: epoch.scores.val)
    assert outcome.summary["best_epoch"] == best.number
    assert outcome.summary["val_accuracy"] == best.scores.val
    assert outcome.best_state.keys() == trainer.state().keys()
    assert outcome.summary["bytes_per_epoch"]["stage"] == 0
    assert outcome.summary["history_age_mean"] == 1.0 and outcome.summary["layers_per_stage"] == [3]
