"""Where epochs are written."""

import io
import json
import math
import sys

import pytest
from runtime.cases import make_config

from gnnpar.config.schema import TraceConfig
from gnnpar.train.evaluation import Scores
from gnnpar.train.loop import Epoch
from gnnpar.train.sinks import open_sinks
from gnnpar.train.trainer import StepResult


class Terminal(io.StringIO):
    def isatty(self):
        return True


def epoch(number, val=None):
    scores = None if val is None else Scores(0.9, val, 0.7, -math.log(val), 0.01)
    return Epoch(number, StepResult(1 / number, 1, 0.25, 0.5, 1), scores, math.nan if val is None else val)


def write(folder, epochs, tensorboard=False):
    sinks = open_sinks(make_config(trace=TraceConfig(tensorboard=tensorboard)), folder)
    for one in epochs:
        for sink in sinks:
            sink.epoch(one)
    return sinks


def test_metrics_are_one_object_a_line_written_at_once(tmp_path):
    sinks = write(tmp_path, [epoch(1), epoch(2, 0.5)])
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for sink in sinks:
        sink.close()
    assert rows[0] == {
        "epoch": 1,
        "train_loss": 1.0,
        "epoch_time_s": 0.5,
        "history_age": 1,
        "history_age_max": 1,
        "history_read_share": 0.25,
    }
    assert rows[1] == {
        **rows[0],
        "epoch": 2,
        "train_loss": 0.5,
        "metric": "accuracy",
        "train_metric": 0.9,
        "val_metric": 0.5,
        "test_metric": 0.7,
        "val_loss": -math.log(0.5),
    }


def test_a_score_that_is_not_known_is_still_json(tmp_path):
    for sink in write(tmp_path, [epoch(1, math.nan)]):
        sink.close()

    def refuse(name):
        pytest.fail(f"{name} is not JSON")

    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=refuse)["val_metric"] is None


def test_tensorboard_gets_the_scalars(tmp_path):
    for sink in write(tmp_path, [epoch(1), epoch(2, 0.5)], tensorboard=True):
        sink.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    values = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert values["loss/train"] == [(1, 1.0), (2, 0.5)]
    assert values["metric/val"] == [(2, 0.5)]
    assert values["loss/val"] == [(2, pytest.approx(math.log(2)))]
    assert values.keys() == {
        "loss/train",
        "loss/val",
        "time/epoch_s",
        "history/age",
        "metric/train",
        "metric/val",
        "metric/test",
    }


def test_without_a_terminal_there_is_no_progress_bar(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    (sink,) = write(tmp_path, [epoch(1)])
    sink.close()
    assert sys.stderr.getvalue() == ""


def test_on_a_terminal_there_is_one_and_it_survives_unknown_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    sinks = write(tmp_path, [epoch(1), epoch(2, math.nan), epoch(3, 0.5)])
    assert len(sinks) == 2
    for sink in sinks:
        sink.close()
    assert "loss" in sys.stderr.getvalue() and "epoch" in sys.stderr.getvalue()
