"""Epoch time of GCNII 16 × 64 beside PyG and DGL: `python -m scripts.bench.epoch` writes
results/tables/epoch.md.

Needs the graphs of GNNPAR_TEST_DATA. Every measurement is a run of its own, in fresh processes; the systems
take turns (A B C A B C …), so that a slow spell of the machine meets all of them. The training step alone
is timed (dropout on, Adam), in the first rank where there are two: a step ends with the loss of the last
stage, which all ranks wait for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnpar.dist.launch import ALLOCATOR
from scripts.bench.report import command_line, machine, save, table

GRAPHS = {"ogbn-arxiv": 16, "pubmed": 8, "coauthor-physics": 8}
"""Graphs, and the chunks that gnnpipe cuts them into."""

MODEL = ("model.num_layers=16", "model.hidden=64", "model.dropout=0.5", "train.lr=0.01")
THRESHOLDS = {name: value for name, value in ALLOCATOR.items() if name.startswith("MALLOC_")}
UNCOUNTED = 2
"""First epochs of a run that are not counted: kernels are compiled, histories written, memory mapped."""

NOTES = """\
Seconds of a training step; each run counts the median of its epochs after the first two. *vs PyG*, *vs
DGL*: how many times faster than PyG's CSR path, and than DGL with the allocator's thresholds raised: median
over rounds of the ratio within a round (least to most). *memory*: largest resident set of each process,
libraries, features and (gnnpar) one exact evaluation included; *of PyG's*: the larger process against PyG's
CSR path.

Peers: one process, two threads; x dense; adjacency normalised once ahead. *thresholds*:
MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ raised; *allocator*: these and huge pages, all that
gnnpar's launcher sets for its own workers. gnnpar: gnnpipe in two processes of one thread each, full_batch
in one process of two threads.

Reading the rows: full batch in the original order against DGL tells what the kernels are worth, full batch
against that what the order of the vertices is worth, and gnnpipe against full batch what chunks, histories
and the pipeline are worth together. full_batch and all peers are exact; gnnpipe reads histories.
"""


@dataclass(frozen=True)
class System:
    """A row of the table."""

    label: str
    peer: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, graph: str, num_epochs: int) -> dict[str, list[float]]:
        """Seconds of the counted epochs and bytes of the processes, of one run in processes of its own."""
        path = Path(os.environ["GNNPAR_TEST_DATA"]) / f"{graph}.npz"
        if self.peer is not None:
            return self._run_peer(path, num_epochs)
        return self._run_own(path, GRAPHS[graph], num_epochs)

    def _run_peer(self, path: Path, num_epochs: int) -> dict[str, list[float]]:
        arguments = [str(path), f"--epochs={num_epochs}", "--threads=2", *self.arguments]
        module = f"scripts.bench.peers.{self.peer}"
        result = json.loads(output([module, *arguments], {"OMP_NUM_THREADS": "2", **dict(self.environment)}))
        return {"seconds": result["seconds"][UNCOUNTED:], "memory": result["peak_memory_bytes"]}

    def _run_own(self, path: Path, num_chunks: int, num_epochs: int) -> dict[str, list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [
                *("dataset=npz", f"dataset.path={path}", "dataset.symmetrize=true", "model=gcnii", *MODEL),
                *(
                    f"train.num_epochs={num_epochs}",
                    f"train.eval_every={num_epochs}",
                    "trace.tensorboard=false",
                ),
                *(f"run.dir={folder}/run", "format=json", *self.arguments),
            ]
            if "system=gnnpipe" in arguments:
                arguments.append(f"batch.num_chunks={num_chunks}")
            output(["gnnpar", "train", *arguments], {})
            run = Path(folder) / "run"
            summary = json.loads((run / "summary.json").read_text())
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        seconds = [row["epoch_time_s"] for row in rows if "epoch_time_s" in row]
        return {"seconds": seconds[UNCOUNTED:], "memory": summary["peak_memory_bytes"]}


def _own(label: str, *arguments: str) -> System:
    return System(label, None, arguments)


PYG, DGL, PIPE = "pyg-csr", "dgl-thresholds", "gnnpipe"
SYSTEMS = {
    PYG: System("PyG GCN2Conv, sparse CSR", "pyg_gcnii", ("--adjacency=csr",)),
    "pyg-edge-index": System("PyG GCN2Conv, edge_index", "pyg_gcnii", ("--adjacency=edge_index",)),
    "dgl": System("DGL GCN2Conv", "dgl_gcnii"),
    DGL: System("DGL GCN2Conv, thresholds", "dgl_gcnii", (), tuple(THRESHOLDS.items())),
    "dgl-allocator": System("DGL GCN2Conv, allocator", "dgl_gcnii", (), tuple(ALLOCATOR.items())),
    "full-batch-unordered": _own(
        "gnnpar full_batch, original order",
        *("system=full_batch", "launch.threads=2", "partition.method=range", "partition.inner_order=none"),
    ),
    "full-batch": _own("gnnpar full_batch", "system=full_batch", "launch.threads=2"),
    PIPE: _own("gnnpar gnnpipe", "system=gnnpipe", "parallel.stages=2", "launch.threads=1"),
    "gnnpipe-recompute": _own(
        "gnnpar gnnpipe, recompute",
        *("system=gnnpipe", "parallel.stages=2", "launch.threads=1", "memory.recompute=true"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help=f"of a peer's run; {UNCOUNTED} are not counted")
    parser.add_argument("--own-epochs", type=int, default=8, help="of a gnnpar run")
    parser.add_argument("--out", type=Path, default=Path("results/tables/epoch.md"))
    args = parser.parse_args()
    if min(args.epochs, args.own_epochs) <= UNCOUNTED:
        parser.error(f"the first {UNCOUNTED} epochs are not counted: ask for more")
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")

    parts = [NOTES.strip()]
    for graph in args.graphs:
        runs: defaultdict[str, list[dict[str, list[float]]]] = defaultdict(list)
        for number in range(args.rounds):
            for name in args.systems:
                start = time.perf_counter()
                system = SYSTEMS[name]
                run = system.run(graph, args.own_epochs if system.peer is None else args.epochs)
                runs[name].append(run)
                print(
                    f"{graph}, round {number + 1}, {system.label}: {_time(run):.3f} s an epoch "
                    f"({time.perf_counter() - start:.0f} s)",
                    file=sys.stderr,
                )
        chunks = f"gnnpipe with {GRAPHS[graph]} chunks, rounds: {args.rounds}"
        parts += [f"## {graph}\n\n{chunks}.", _table(runs)]
    parts += [f"Command: `{command_line('scripts.bench.epoch')}`", machine()]
    save(args.out, "Epoch time, GCNII 16 × 64", parts)


def _table(runs: dict[str, list[dict[str, list[float]]]]) -> str:
    head = ("system", "median s", "min s", "vs PyG", "vs DGL", "memory MiB", "of PyG's")
    rows = []
    for name, own in runs.items():
        memory = [
            statistics.median(run["memory"][rank] for run in own) for rank in range(len(own[0]["memory"]))
        ]
        share = "–"
        if PYG in runs:
            share = f"{max(memory) / statistics.median(run['memory'][0] for run in runs[PYG]):.2f}"
        rows.append(
            (
                SYSTEMS[name].label,
                f"{statistics.median(_time(run) for run in own):.3f}",
                f"{min(second for run in own for second in run['seconds']):.3f}",
                _ratio(runs, PYG, name),
                _ratio(runs, DGL, name),
                " + ".join(f"{count / 2**20:.0f}" for count in memory),
                share,
            )
        )
    return table(head, rows)


def _ratio(runs: dict[str, list[dict[str, list[float]]]], peer: str, name: str) -> str:
    if peer not in runs:
        return "–"
    if peer == name:
        return "1"
    ratios = [_time(theirs) / _time(own) for theirs, own in zip(runs[peer], runs[name], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _time(run: dict[str, list[float]]) -> float:
    return statistics.median(run["seconds"])


def output(arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Standard output of `python -m …`, whose allocator and threads are set by `environment` alone."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "OMP_", "MKL_", "NUMBA_NUM", "OPENBLAS_"))
        and name != "GLIBC_TUNABLES"
    }
    command = [sys.executable, "-W", "ignore", "-m", *arguments]
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
