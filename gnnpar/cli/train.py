"""`gnnpar train`: compose, check, run, print."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnpar.cli.options import split_options, wants_help
from gnnpar.cli.table import bytes_text, print_json, print_pairs, seconds_text
from gnnpar.config import compose, group_choices

__all__ = ["main", "summary_pairs"]

USAGE = """usage: gnnpar train [GROUP=NAME …] [KEY=VALUE …] [format=table|json]

Trains and prints a summary; everything about the run is in its directory, results/runs/… or run.dir=DIR.
Without arguments: GCNII with 32 layers on `digits`, in two pipeline stages and eight chunks.

{groups}

  gnnpar train dataset=npz dataset.path=graph.npz dataset.symmetrize=true
  gnnpar train model=gcnii model.num_layers=64 parallel.stages=4 batch.num_chunks=16 seed=3
  gnnpar train system=full_batch train.num_epochs=50 format=json
  torchrun --nproc-per-node 2 -m gnnpar train

docs/configuration.md lists all keys.
"""


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` and `RunError` for the caller to print."""
    if wants_help(argv):
        groups = (f"{name}=  {' '.join(names)}" for name, names in group_choices().items())
        wrapped = (textwrap.fill(line, 100, subsequent_indent=" " * 10) for line in groups)
        print(USAGE.format(groups="\n".join(wrapped)), end="")
        return 0
    options, overrides = split_options(argv)
    config = compose(overrides)

    # torch and what stands on it, only after the configuration is known to be good
    from gnnpar.dist.launched import is_first_process, settle, under_launcher
    from gnnpar.train.run import run
    from gnnpar.train.rundir import dataset_title

    if under_launcher():
        settle(config.launch)
    result = run(config, ["gnnpar", "train", *argv])
    if not is_first_process():  # of torchrun or srun
        return 0
    summary = {**result.summary, "run_dir": str(result.run_dir)}
    if options["format"] == "json":
        print_json(summary)
    else:
        model = f"{config.model.name}, {config.model.num_layers} layers"
        pairs = list(summary_pairs(summary))
        print_pairs(f"{config.system}: {model}, on {dataset_title(config)}", pairs)
        width = max(len(name) for name, _ in pairs)
        # Not in the table, which folds what is longer than the terminal is wide.
        print(f"{'run directory':<{width}}  {_shown(result.run_dir)}")
    return 0


def summary_pairs(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The summary in a reader's words, in the order of interest, without what one rank or chunk has not."""
    scores = {name: summary[f"{name}_accuracy"] for name in ("train", "val", "test")}
    known = [f"{_percent(score)} {name}" for name, score in scores.items() if not math.isnan(score)]
    metric = {"accuracy": "accuracy", "rocauc": "ROC-AUC"}[summary["metric"]]
    validated = not math.isnan(scores["val"])
    when = "at the best validation epoch" if validated else "(no validation set: last epoch kept)"
    yield f"{metric} {when}", f"{', '.join(known)} (epoch {summary['best_epoch']})"
    yield (
        "epoch time, median",
        f"{seconds_text(summary['epoch_time_s'])}, evaluation {seconds_text(summary['eval_time_s'])}",
    )
    if len(summary["peak_memory_bytes"]) > 1:
        sent = [f"{kind} {bytes_text(count)}" for kind, count in summary["bytes_per_epoch"].items() if count]
        yield "sent per epoch", ", ".join(sent)
        theory = _percent(summary["bubble_theory"])
        yield "bubble", f"{_percent(summary['bubble'])} measured, {theory} in theory"
    if summary["history_read_share"]:
        age = f"mean {summary['history_age_mean']:.2f}, max {summary['history_age_max']} steps"
        yield "age of histories", f"{age}; {_percent(summary['history_read_share'])} of reads"
    if summary["halo_age_max"]:
        yield (
            "age of rows of other ways",
            f"mean {summary['halo_age_mean']:.2f}, max {summary['halo_age_max']} steps",
        )
    yield "peak memory by rank", ", ".join(map(bytes_text, summary["peak_memory_bytes"]))


def _shown(folder: Path) -> Path:
    """Relative to the working directory, where it is below it."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
