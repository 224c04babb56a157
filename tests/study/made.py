"""Runs that nobody trained: directories as `gnnpar train` leaves them, and commands that make them."""

import json
import shlex
from dataclasses import replace
from functools import cache

from gnnpar.config import RunDirConfig, compose, to_yaml

SUMMARY = {
    "metric": "accuracy",
    "val_accuracy": 0.9,
    "test_accuracy": 0.8,
    "train_accuracy": 1.0,
    "best_epoch": 2,
    "num_epochs": 2,
    "epoch_time_s": 0.5,
    "total_time_s": 1.5,
    "num_parameters": 1234,
    "peak_memory_bytes": [2**20, 2**20],
}


@cache
def composed(overrides):
    """`compose` takes a tenth of a second, and tests want the same runs over and over."""
    return compose(overrides)


def make_run(folder, *overrides, finished=True, points=((1, 0.5), (2, 0.75)), **changes):
    """A finished run of `gnnpar train overrides…` in `folder`; `changes` of its summary."""
    folder.mkdir(parents=True)
    config = replace(composed(overrides), run=RunDirConfig(dir=str(folder)))
    (folder / "config.yaml").write_text(to_yaml(config))
    command = ["gnnpar", "train", *overrides, f"run.dir={folder}", "format=json"]
    (folder / "command.txt").write_text(shlex.join(command) + "\n")
    (folder / "env.json").write_text("{}")
    rows = [
        {"epoch": epoch, "epoch_time_s": 0.5, "train_loss": 1.0, "val_metric": val} for epoch, val in points
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        (folder / "summary.json").write_text(json.dumps(SUMMARY | changes))
    return folder


class StandIn:
    """Commands for `run_sweep` that cost nothing: a shell makes a run directory, waits, writes the summary.

    Attributes:
        scripts: what a job does instead of sleeping `seconds`, by its seed.
    """

    def __init__(self, folder, seconds=0.05, scripts=None):
        self.folder, self.seconds, self.scripts = folder, seconds, scripts or {}
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps(SUMMARY))

    def __call__(self, job, run_dir, again):
        config = self.folder / f"{job.hash}.yaml"
        config.write_text(to_yaml(job.config))
        command = self.folder / f"{job.hash}.txt"
        command.write_text(shlex.join(["gnnpar", "train", *job.overrides]))
        make = (
            f"echo $$ >> {self.folder}/pids; mkdir -p {run_dir}; cp {config} {run_dir}/config.yaml; "
            f"cp {command} {run_dir}/command.txt; touch {run_dir}/env.json; "
        )
        end = f"; cp {self.folder}/summary.json {run_dir}/part && mv {run_dir}/part {run_dir}/summary.json"
        work = self.scripts.get(job.config.seed, f"sleep {self.seconds}")
        return ["sh", "-c", make + work + end]

    def pids(self):
        return [int(line) for line in (self.folder / "pids").read_text().split()]
