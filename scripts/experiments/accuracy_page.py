"""Notes and tables of results/tables/accuracy.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from scripts.bench.report import table
from scripts.experiments.accuracy_cases import CASES, CHUNKS, EVAL_EVERY, VARIANTS, Run

__all__ = ["accuracy_table", "detail_table", "notes"]

Results = Sequence[tuple[Run, dict[str, Any]]]
"""Runs with the summary of each."""

DETAILS = ("best_epoch", "num_epochs", "history_read_share", "history_age_mean", "total_time_s")


def notes(cases: Sequence[str], seeds: Sequence[int], num_epochs: int | None) -> str:
    """What was trained, for readers of the tables."""
    ends = ", ".join(
        f"{CASES[name].label} {num_epochs or CASES[name].num_epochs}/{CASES[name].patience}" for name in cases
    )
    return f"""\
Test accuracy in percent at the best epoch, mean ± standard deviation (unbiased) over the seeds
{", ".join(map(str, seeds))}; for Chameleon and Squirrel the seed also chooses the official split.
{CHUNKS} METIS chunks in an order drawn anew each step. *γ*: `history.mode=latest`;
*drop*, *snapshot(20)*: γ = 1; *full batch* is exact, one chunk.

GCNII has the hyper-parameters of its paper: Adam, lr .01, α .1, weight decay 5e-4, of convolutions .01
(PubMed: 5e-4), features normalised by row, public split; as there, the best epoch has the lowest validation
loss. ResGCN+: lr .01, weight decay 5e-4, dropout .5. GCN: no residuals; LayerNorm, lr 3e-4, no dropout, no
weight decay, gradients clipped at norm 1. Both: best epoch by validation accuracy. Evaluated every
{EVAL_EVERY} epochs. Epochs at most / without a better one before stopping: {ends}.

Every run trains in one process (one stage): more stages change results by rounding only."""


def accuracy_table(results: Results, cases: Sequence[str], num_seeds: int) -> str:
    """A row a case, a column a variant."""
    rows = []
    for name in cases:
        cells = [
            _mean([result["test_accuracy"] for result in _of(results, name, variant)], num_seeds)
            for variant in VARIANTS
        ]
        rows.append((CASES[name].label, CASES[name].published, *cells))
    return table(("test accuracy, %", "published", *VARIANTS), rows)


def detail_table(results: Results, cases: Sequence[str], num_seeds: int) -> str:
    """A row a case and variant: validation, epochs, staleness, time."""
    rows = []
    for name in cases:
        for variant in VARIANTS:
            found = _of(results, name, variant)
            if found:
                mean = {key: statistics.mean(result[key] for result in found) for key in DETAILS}
                rows.append(
                    (
                        f"{CASES[name].label}, {variant}",
                        _mean([result["val_accuracy"] for result in found], num_seeds),
                        f"{mean['best_epoch']:.0f}",
                        f"{mean['num_epochs']:.0f}",
                        f"{100 * mean['history_read_share']:.0f}%",
                        f"{mean['history_age_mean']:.1f}",
                        f"{mean['total_time_s']:.0f}",
                    )
                )
    counts = ("best epoch", "epochs", "historical reads", "their age", "seconds a run")
    return table(("means over seeds", "validation, %", *counts), rows)


def _of(results: Results, case: str, variant: str) -> list[dict[str, Any]]:
    return [result for run, result in results if (run.case, run.variant) == (case, variant)]


def _mean(shares: list[float], wanted: int) -> str:
    if not shares:
        return "–"
    percent = [100 * share for share in shares]
    spread = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    return f"{statistics.mean(percent):.1f}{spread}" + (
        f" (n={len(percent)})" if len(percent) < wanted else ""
    )
