"""Neighbour sampling beside DGL: `python -m scripts.bench.sampling` writes results/tables/sampling.md.

Needs ogbn-arxiv.npz in the folder GNNPAR_TEST_DATA, and DGL. Contenders take turns in one process, in a fresh
order every round, on the same seeds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch import Batch, NeighbourSampler, Prefetch, SeedBatches
from gnnpar.data import load
from gnnpar.graph import Graph
from gnnpar.interop.dgl import import_dgl
from scripts.bench.report import command_line, machine, save, table

FANOUTS = [15, 10, 5]
SIZE = 1024

NOTES = """\
ogbn-arxiv, symmetrised; fan-outs 15-10-5, 15 at the seeds; batches of 1024 seeds out of a shuffle of all
vertices; no worker processes. DGL is `dgl.dataloading.NeighborSampler([5, 10, 15])` on the same CSR. Ours
also gives edge weights, edge ids and whole-graph degrees, DGL edge ids.

Seeds per second are medians over the rounds, and so are the times relative to ours of the same round: above
1, ours is faster. *of CPU time*: seeds per second of the calling process's CPU time, all threads together,
which jobs beside it on the machine disturb less than wall-clock time. A prefetch thread costs the same CPU
time; what it buys is that the main thread is free, and, with two threads, a second core where there is
one."""

Contender = Callable[[list[Any]], Iterable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--batches", type=int, default=20, help="a round and contender")
    parser.add_argument("--out", type=Path, default=Path("results/tables/sampling.md"))
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        path = Path(os.environ["GNNPAR_TEST_DATA"]) / "ogbn-arxiv.npz"
        graph = load("ogbn-arxiv", kind="npz", path=str(path), home=Path(home)).symmetrize()
        spare = [spare_cores()]
        rows = measure(graph, args.rounds, args.batches)
        spare.append(spare_cores())
    head = ("sampler", "seeds/s", "time ÷ ours", "of CPU time: seeds/s", "CPU time ÷ ours", "edges/seed")
    spare_note = (
        f"What two threads can gain at all while other jobs run: checksums, which hold no lock, ran "
        f"{statistics.mean(spare):.2f} times as fast on two threads as on one, measured before and after."
    )
    command = f"Command: `{command_line('scripts.bench.sampling')}` ({args.rounds} rounds)"
    save(args.out, "Neighbour sampling", [NOTES, table(head, rows), spare_note, command, machine()])


def measure(graph: Graph, rounds: int, batches: int) -> list[tuple[str, ...]]:
    contenders: dict[str, Contender] = {
        "gnnpar": ours(NeighbourSampler(graph, FANOUTS)),
        "gnnpar, prefetched by 1 thread": ours(NeighbourSampler(graph, FANOUTS), 1),
        "gnnpar, prefetched by 2 threads": ours(NeighbourSampler(graph, FANOUTS), 2),
        "gnnpar, with replacement": ours(NeighbourSampler(graph, FANOUTS, replace=True)),
        "gnnpar, labor": ours(NeighbourSampler(graph, FANOUTS, labor=True)),
        "DGL": theirs(graph),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    edges = dict.fromkeys(contenders, 0)
    seeds = SeedBatches(torch.arange(graph.num_nodes), SIZE)
    for epoch in range(rounds + 1):
        work = seeds.epoch(epoch)[:batches]
        for name in random.sample(list(contenders), len(contenders)):
            wall, cpu = time.perf_counter(), time.process_time()
            for batch in contenders[name](work):
                edges[name] += num_edges(batch)
            if epoch > 0:  # the first round compiles
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    count, base = batches * SIZE, times["gnnpar"]
    rows = []
    for name, own in times.items():
        cells = []
        for clock in (0, 1):
            cells.append(f"{count / statistics.median(pair[clock] for pair in own):,.0f}")
            ratios = [pair[clock] / first[clock] for pair, first in zip(own, base, strict=True)]
            cells.append(f"{statistics.median(ratios):.2f}")
        rows.append((name, *cells, f"{edges[name] / (rounds + 1) / count:.0f}"))
    return rows


def spare_cores() -> float:
    """How many times the checksums of one thread do two threads make: 2 on an idle machine of two cores."""
    data = bytes(1 << 27)

    def rate(num_threads: int) -> float:
        start = time.perf_counter()
        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(zlib.crc32, [data] * (4 * num_threads)))
        return num_threads / (time.perf_counter() - start)

    return statistics.median(rate(2) / rate(1) for _ in range(7))


def ours(sampler: NeighbourSampler, num_threads: int = 0) -> Contender:
    def run(work: list[Any]) -> Iterable[object]:
        def make(number: int) -> object:
            key, seeds = work[number]
            return sampler.sample(seeds, key)

        if not num_threads:
            yield from map(make, range(len(work)))
            return
        with Prefetch(make, len(work), depth=2 * num_threads, num_threads=num_threads) as batches:
            yield from batches

    return run


def theirs(graph: Graph) -> Contender:
    dgl = import_dgl()
    from dgl.dataloading import NeighborSampler

    none = torch.empty(0, dtype=torch.int64)
    structure = dgl.graph(("csc", (graph.indptr, graph.indices.long(), none)))
    sampler = NeighborSampler(FANOUTS[::-1])

    def run(work: list[tuple[object, Tensor]]) -> Iterable[object]:
        for _, seeds in work:
            yield sampler.sample(structure, seeds)[2]

    return run


def num_edges(batch: Any) -> int:
    """Of our batches, or of DGL's blocks, whose count is a method."""
    if isinstance(batch, Batch):
        return sum(block.num_edges for block in batch.blocks)
    return sum(block.num_edges() for block in batch)


if __name__ == "__main__":
    main()
