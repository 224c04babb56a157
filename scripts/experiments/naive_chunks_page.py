"""Notes and tables of results/tables/naive_chunks.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.bench.report import table
from scripts.experiments.accuracy_cases import EVAL_EVERY
from scripts.experiments.naive_chunks_cases import CASES, NaiveRun

__all__ = ["page"]

Results = Sequence[tuple[NaiveRun, Mapping[str, Any]]]
Times = Mapping[tuple[str, str, int], Mapping[str, Any]]
"""Summaries of the timed runs by (case, variant, chunks)."""

NOTES = """\
Dearing and Wang (2020, arXiv:2012.10840) trained a GAT on PubMed with GPipe as it is, which cuts any tensor
into chunks by row: here `system=gpipe_naive`. Vertices are numbered as the dataset comes, so that most
edges lead from one chunk into another, and these are lost: every chunk is trained on the subgraph of its
own vertices. They report that chunks made training slower and less accurate. From their paper's abstract
and summaries of it: GAT, PubMed, GPipe, one to four chunks, one and four GPUs. Not recovered: their tables,
epochs, numbers of output heads, which split evaluation used. Where unknown, the values are those of GAT's
authors and their followers.

- *by number*: `system=gpipe_naive`, ranges of equally many vertices; cut edges are lost in training.
- *METIS*: `system=gpipe`, METIS clusters; cut edges are lost in training, but they are few.
- *METIS, history*: `system=gnnpipe`, γ = 1: the same chunks read rows of the last step across cut edges.
- *by number, history*: the same on ranges.

GAT: two layers, 8 heads of 8, then one head a class, dropout .6 of inputs and of attention, Adam, lr .005,
weight decay 5e-4, 300 epochs, best epoch by validation accuracy. GCNII: 16 layers of width 64, α .1, λ .4,
dropout .5, lr .01, weight decay 5e-4, at most 500 epochs, patience 100, best epoch by validation loss.
PubMed, public split, features normalised by row; evaluated every {eval_every} epochs.

*test*: on the whole graph, all edges. *cut edges lost*: the same parameters where the edges between chunks
are lost in evaluation too, as they are where evaluation goes through the same pipeline. Percent, mean ±
standard deviation over {num_seeds} seeds (n: of fewer). *epoch*, *CPU*: median of {num_epochs} epochs in
two stages of one thread each (full batch: one process of two threads), and CPU seconds of both ranks
together."""

INDUCED = """\
What making the subgraphs anew costs, where only vertex numbers travel and every stage asks for the edges of
its chunk: CPU time of PyG's `subgraph` over all ranges once, which a pass pays at every layer or stage:"""

LESSON = """\
So the loss of accuracy is that of evaluating without the edges, more than that of training without them: with
few labels and much dropout, training on part of the edges does little harm on PubMed. That chunks make epochs
slower is not found here, where subgraphs are made once.

What follows for this library: micro-batches are chunks of a graph partition; their CSR is made once, before
the first step, not anew in every stage and epoch; what crosses stages is rows, never edges or subgraphs;
edges between chunks are kept, by history."""


def page(
    found: Results, times: Times, induced: Mapping[int, float], num_seeds: int, num_epochs: int
) -> list[str]:
    """All parts of the page but command and machine.

    Args:
        induced: CPU seconds that it takes to make the subgraphs of so many ranges.
    """
    parts = [NOTES.format(eval_every=EVAL_EVERY, num_seeds=num_seeds, num_epochs=num_epochs)]
    for name, case in CASES.items():
        rows = []
        for key in dict.fromkeys((run.variant, run.chunks) for run, _ in found if run.case == name):
            results = [result for run, result in found if (run.case, run.variant, run.chunks) == (name, *key)]
            rows.append(_row(*key, results, times.get((name, *key)), num_seeds))
        if rows:
            parts += [f"## {case.label}", table(HEAD, sorted(rows, key=_chunks)), *_finding(name, found)]
    if induced:
        said = ", ".join(f"{chunks} chunks {1e3 * seconds:.1f} ms" for chunks, seconds in induced.items())
        parts.append(f"{INDUCED} {said}.")
    return [*parts, LESSON]


def _finding(case: str, found: Results) -> list[str]:
    """What most chunks by number lose against full batch, seeds that both have, in points."""
    most = max((run.chunks for run, _ in found), default=1)
    of = {(run.variant, run.chunks, run.seed): result for run, result in found if run.case == case}
    seeds = [seed for variant, chunks, seed in of if (variant, chunks) == ("by number", most)]
    pairs = [
        (of["full batch", 1, seed], of["by number", most, seed])
        for seed in seeds
        if ("full batch", 1, seed) in of
    ]
    if not pairs or most == 1:
        return []
    gains = [
        100 * statistics.mean(naive[key] - full["test_accuracy"] for full, naive in pairs)
        for key in ("test_accuracy", "test_accuracy_cut")
    ]
    return [
        f"{most} chunks by number against full batch, mean of {len(pairs)} seed{'s' * (len(pairs) > 1)}: "
        f"{gains[0]:+.1f} points where evaluation reads all edges, {gains[1]:+.1f} where it loses the same "
        f"edges as training."
    ]


HEAD = (
    *("chunks", "edges cut", "lost", "test, %", "cut edges lost, %", "validation, %"),
    *("best epoch", "epoch s", "CPU s"),
)


def _chunks(row: tuple[str, ...]) -> str:
    return row[0].partition(" ")[0]


def _row(
    variant: str, chunks: int, results: Sequence[Mapping[str, Any]], timed: Any, wanted: int
) -> tuple[str, ...]:
    cut = results[0]["cut_share"]
    loses = "history" not in variant
    return (
        f"{chunks} {variant}",
        f"{cut:.1%}",
        f"{cut:.1%}" if loses else "0.0%",
        *(_mean([r[key] for r in results], wanted) for key in ("test_accuracy", "test_accuracy_cut")),
        _mean([result["val_accuracy"] for result in results], wanted),
        f"{statistics.mean(result['best_epoch'] for result in results):.0f}",
        f"{timed['epoch_time_s']:.3f}" if timed else "–",
        f"{sum(timed['epoch_cpu_s']):.3f}" if timed else "–",
    )


def _mean(shares: Sequence[float], wanted: int) -> str:
    percent = [100 * share for share in shares]
    spread = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    return f"{statistics.mean(percent):.1f}{spread}" + (
        f" (n={len(percent)})" if len(percent) < wanted else ""
    )
