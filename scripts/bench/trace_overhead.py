"""What tracing costs: `python -m scripts.bench.trace_overhead` writes results/tables/trace_overhead.md.

Needs the graphs of GNNPAR_TEST_DATA. GCNII 16 × 64 with gnnpipe in two processes, traced and not, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from scripts.bench.epoch import GRAPHS, MODEL, UNCOUNTED, output
from scripts.bench.report import command_line, machine, save, table

NOTES = """\
Seconds of a training step, median of a run's epochs after the first two; least to most over the runs. Runs
take turns: not traced, traced … *overhead*: median over rounds of the ratio within a round, minus 1.
"""


def seconds(graph: str, num_epochs: int, traced: bool) -> tuple[float, int]:
    """Median step of one run in processes of its own, and the bytes of its events."""
    path = Path(os.environ["GNNPAR_TEST_DATA"]) / f"{graph}.npz"
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            *("dataset=npz", f"dataset.path={path}", "dataset.symmetrize=true", "model=gcnii", *MODEL),
            *("system=gnnpipe", "parallel.stages=2", f"batch.num_chunks={GRAPHS[graph]}"),
            *("launch.threads=1", f"train.num_epochs={num_epochs}", f"train.eval_every={num_epochs}"),
            *("trace.tensorboard=false", f"trace.enabled={str(traced).lower()}", f"run.dir={folder}/run"),
        ]
        output(["gnnpar", "train", *arguments], {})
        run = Path(folder) / "run"
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        size = sum(log.stat().st_size for log in run.glob("trace/*.events"))
    return statistics.median(row["epoch_time_s"] for row in rows[UNCOUNTED:]), size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=["ogbn-arxiv"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10, help=f"of a run; {UNCOUNTED} are not counted")
    parser.add_argument("--out", type=Path, default=Path("results/tables/trace_overhead.md"))
    args = parser.parse_args()
    if args.epochs <= UNCOUNTED:
        parser.error(f"the first {UNCOUNTED} epochs are not counted: ask for more")
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    rows = []
    for graph in args.graphs:
        found = []
        for number in range(args.rounds):
            plain, _ = seconds(graph, args.epochs, False)
            traced, size = seconds(graph, args.epochs, True)
            found.append((plain, traced, size / args.epochs))
            print(f"{graph}, round {number + 1}: {plain:.4f} s, traced {traced:.4f} s", flush=True)
        rows.append(_row(graph, found))
    head = ("graph", "not traced s", "traced s", "overhead", "least to most", "KiB an epoch")
    parts = [f"`{command_line('scripts.bench.trace_overhead')}`", NOTES.strip(), table(head, rows), machine()]
    save(args.out, "What tracing costs", parts)


def _row(graph: str, found: list[tuple[float, float, float]]) -> tuple[str, ...]:
    plain, traced, sizes = zip(*found, strict=True)
    ratios = sorted(100 * (b / a - 1) for a, b in zip(plain, traced, strict=True))
    return (
        graph,
        f"{statistics.median(plain):.4f} ({min(plain):.4f} to {max(plain):.4f})",
        f"{statistics.median(traced):.4f} ({min(traced):.4f} to {max(traced):.4f})",
        f"{statistics.median(ratios):+.1f}%",
        f"{ratios[0]:+.1f}% to {ratios[-1]:+.1f}%",
        f"{statistics.median(sizes) / 1024:.0f}",
    )


if __name__ == "__main__":
    main()
