"""Every family in real processes against one process: `python -m scripts.experiments.live_grid`.

Writes results/tables/live_grid.md. Takes the clusters of PubMed where GNNPAR_TEST_DATA names its folder, else
those of a tiny graph. The test suite runs one case a family; this runs several numbers of micro-batches.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import torch
from support.live import clusters_of, config_of, differences, pubmed, serial_steps, train_all
from support.pool import Pool

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, HistoryConfig, OptimizerConfig, RunConfig, TrainConfig
from gnnpar.dist import Context
from gnnpar.errors import InputError
from gnnpar.schedule.families import FAMILIES
from scripts.bench.report import command_line, machine, save, table

COUNTS = {2: (4, 6, 12), 4: (8, 12, 16)}
"""Ranks → numbers of micro-batches."""
TOLERANCE = 1e-10
CLUSTER_STEPS, CHUNK_STEPS = 2, 4

NOTES = """\
{graph}, float64, a network of eight ResGCN+ layers of width 8 with layer norm
and dropout 0.3, gloo, S processes of one thread. Each cell is the largest error of a step: |Δloss| relative
to the loss, or |Δ| of a gradient's element relative to the largest one, whichever is larger. A dash: the
family is not defined for these numbers, or its stages branch, which those of a chain of layers do not. At
most 1e-10 is wanted.
"""
ON_CLUSTERS = """\
Independent micro-batches (`batch.kind=clusters`), two steps of Adam, against autograd over all clusters at
once in one process. Where a family holds two replicas, the copies of every parameter are equal to the bit
after every step.
"""
ON_CHUNKS = """\
Chunks that read each other and histories (`history.mode={mode}`), the first step exact, the order of the
chunks drawn anew each step, four steps of SGD, against the same chunks in one process in the order of
`gpipe`. γ = 1 needs backwards in reverse order; γ = 0 allows every family that takes chunks in order on
every stage. The others are refused.
"""


@dataclass(frozen=True)
class Case:
    """One run; `gamma` is None on clusters."""

    name: str
    ranks: int
    micro_batches: int
    gamma: float | None = None
    mode: str = "latest"

    def config(self) -> RunConfig | None:
        """Its configuration; None where it is refused."""
        keys: dict[str, Any] = {}
        if self.gamma is not None:
            keys = {
                "batch": BatchConfig(num_chunks=self.micro_batches),
                "history": HistoryConfig(mode=self.mode, period=2, gamma=self.gamma),
                "optimizer": OptimizerConfig(name="sgd"),
                "train": TrainConfig(lr=0.2),
            }
        try:
            return config_of(self.name, self.ranks, self.micro_batches, **keys)
        except InputError:
            return None


@cache
def chunked_graph(number: int) -> ChunkedGraph:
    return clusters_of(pubmed(), number)


@cache
def serial(case: Case) -> list[tuple[float, dict[str, torch.Tensor]]]:
    """Loss and gradients of every step in one process."""
    chunked, config = chunked_graph(case.micro_batches), case.config()
    assert config is not None
    if case.gamma is None:
        return [(step.loss, step.gradients) for step in serial_steps(config, chunked, CLUSTER_STEPS)]
    (steps,) = train_all(Context.single(), [config], chunked, CHUNK_STEPS)
    return [(loss, gradients) for loss, ((_, gradients, _),) in steps]


def error(case: Case, of_ranks: Iterable[Any]) -> float:
    """The largest error of all steps and ranks; infinite where replicas differ or a parameter is missing."""
    alone = Case("gpipe", 1, case.micro_batches, case.gamma, case.mode)
    worst = 0.0
    for (loss, gradients), ranks in zip(serial(alone), zip(*of_ranks, strict=True), strict=True):
        copies: dict[str, torch.Tensor] = {}
        for found, held in ranks:
            worst = max(worst, abs(found - loss) / abs(loss))
            for _, mine, parameters in held:
                worst = max(worst, differences(mine, gradients))
                for name, value in parameters.items():
                    if not torch.equal(copies.setdefault(name, value), value):
                        return float("inf")
        if copies.keys() != gradients.keys():
            return float("inf")
    return worst


def run_grid(pool: Pool, families: list[str], gamma: float | None, mode: str = "latest") -> dict[Case, float]:
    """The error of every case that is legal. One call of the pool runs all cases of the same graph."""
    found = {}
    for ranks, counts in COUNTS.items():
        for count in counts:
            cases = [Case(name, ranks, count, gamma, mode) for name in families]
            legal = {case: config for case in cases if (config := case.config()) is not None}
            steps = CLUSTER_STEPS if gamma is None else CHUNK_STEPS
            start = time.perf_counter()
            chunked = chunked_graph(count)
            of_ranks = pool.run(train_all, ranks, list(legal.values()), chunked, steps, timeout_s=600)
            for case, mine in zip(legal, zip(*of_ranks, strict=True), strict=True):
                found[case] = error(case, mine)
            seconds = time.perf_counter() - start
            print(f"{len(legal)} families, S = {ranks}, M = {count}, γ {gamma}, {mode}: {seconds:.0f} s")
    return found


def grid_table(found: dict[Case, float]) -> str:
    """A row a family, a column for each S and M."""
    columns = [(ranks, count) for ranks, counts in COUNTS.items() for count in counts]
    cells = {(case.name, case.ranks, case.micro_batches): f"{value:.1e}" for case, value in found.items()}
    names = sorted({case.name for case in found})
    rows = [(name, *(cells.get((name, *column), "–") for column in columns)) for name in names]
    return table(["family", *(f"S={ranks} M={count}" for ranks, count in columns)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("results/tables/live_grid.md"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    pool = Pool(size=max(COUNTS))
    graph = pubmed()
    parts = [f"`{command_line('scripts.experiments.live_grid')}`"]
    what = "A tiny graph" if graph is None else f"PubMed ({graph.num_nodes:,} vertices)"
    parts.append(NOTES.strip().format(graph=what))
    everything: dict[Case, float] = {}
    try:
        on_clusters = run_grid(pool, args.families, None)
        parts += ["## Clusters", ON_CLUSTERS.strip(), grid_table(on_clusters)]
        everything |= on_clusters
        for mode in ("latest", "snapshot"):
            parts += [f"## Chunks with history, {mode}", ON_CHUNKS.strip().format(mode=mode)]
            for gamma in (1.0, 0.0):
                on_chunks = run_grid(pool, args.families, gamma, mode)
                parts += [f"γ = {gamma:g}:", grid_table(on_chunks)]
                everything |= on_chunks
    finally:
        pool.close()
    worst = max(everything, key=lambda case: everything[case])
    holds = "All hold" if everything[worst] <= TOLERANCE else "NOT all hold"
    size, name = f"{everything[worst]:.1e}", f"{worst.name}, S={worst.ranks}, M={worst.micro_batches}"
    parts.append(f"{holds}: {len(everything)} runs, the largest error is {size}, of {name}.")
    parts.append(machine())
    save(args.out, "Every family live against one process", parts)
    raise SystemExit(everything[worst] > TOLERANCE)


if __name__ == "__main__":
    main()
