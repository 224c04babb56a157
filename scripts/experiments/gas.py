"""What historical embeddings save and cost on ogbn-arxiv: `python -m scripts.experiments.gas`.

GCNII 4 × 256 in full batch, and as GAS, REST-like and LMC-like runs in 24 parts, histories in memory or in
files. Peak memory of training epochs (and of evaluation, apart), epoch time, accuracy against full batch.
Writes results/tables/gas.md; needs ogbn-arxiv.npz in GNNPAR_TEST_DATA (with substitute features: accuracies
are not those of the leaderboard). One run at a time, in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from gnnpar.config import compose
from gnnpar.dist.launch import ALLOCATOR
from scripts.bench.report import command_line, machine, save, table

COMMON = (
    *("dataset=npz", "dataset.name=ogbn-arxiv", "dataset.symmetrize=true"),
    *("model=gcnii", "model.num_layers=4", "model.hidden=256", "model.dropout=0.3", "model.alpha=0.2"),
    *("model.norm=layer", "train.lr=0.01", "train.weight_decay=0"),
)


def variants(parts: int, joined: int) -> dict[str, tuple[str, ...]]:
    """Label → overrides. `joined` parts an update; an epoch has parts ÷ joined updates."""
    steps = (
        f"batch.num_chunks={parts}",
        f"batch.joined={joined}",
        f"batch.steps_per_epoch={parts // joined}",
    )
    return {
        "full batch": ("system=full_batch",),
        "GAS": ("system=gas", *steps),
        "GAS, histories in files": ("system=gas", *steps, "history.store=disk"),
        "GAS, refreshed every epoch": ("system=gas", *steps, f"history.refresh_every={parts // joined}"),
        "compensated (LMC, β = 0)": ("system=lmc", *steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--parts", type=int, default=24)
    parser.add_argument("--joined", type=int, nargs="+", default=[1, 12], help="parts of one update")
    parser.add_argument("--only", nargs="+", help="labels of the variants to train")
    parser.add_argument("--out", type=Path, default=Path("results/tables/gas.md"))
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    os.environ.update(ALLOCATOR, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    path = Path(os.environ["GNNPAR_TEST_DATA"]).absolute() / "ogbn-arxiv.npz"
    rows = []
    for joined in args.joined:
        for label, keys in variants(args.parts, joined).items():
            whole = label == "full batch"
            if (args.only and label not in args.only) or (whole and joined != args.joined[0]):
                continue
            keys = (*keys, *COMMON, f"dataset.path={path}", f"train.num_epochs={args.epochs}")
            found = [_alone((*keys, f"seed={seed}")) for seed in args.seeds]
            rows.append(_row(label, "–" if whole else str(joined), found))
            print(" | ".join(rows[-1]), flush=True)
    head = ["ogbn-arxiv, GCNII 4 × 256", "parts an update", "test", "validation", "s an epoch"]
    head += [
        "peak MiB, training",
        "before",
        "peak MiB, evaluation",
        "age",
        "edges from history",
    ]
    seeds = ", ".join(map(str, args.seeds))
    parts = [
        f"Mean and standard deviation over seeds {seeds}; {args.epochs} epochs, the best by validation "
        f"accuracy; {args.parts} METIS parts; one process of one thread. Memory is the resident set; before: "
        "libraries, graph and parameters, before the first step. Substitute features: not comparable with "
        "the leaderboard.",
        table(head, rows),
        f"Command: `{command_line('scripts.experiments.gas')}`",
        machine(),
    ]
    save(args.out, "Historical embeddings: memory and accuracy", parts)


def train(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Train in this process, with one thread. Memory in bytes; times in seconds."""
    import torch

    from gnnpar.data import load
    from gnnpar.dist import Context
    from gnnpar.train.job import make_model
    from gnnpar.train.memory import release_freed_memory
    from gnnpar.train.run import prepare
    from gnnpar.train.trainer import Trainer

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = compose([*overrides, f"history.dir={folder}"])
        graph = load(config.dataset)
        chunked = prepare(config, graph, None)
        model = make_model(config, graph)
        del graph
        release_freed_memory()
        trainer = Trainer(model, chunked, config, Context.single())
        before, seconds, ages, shares = _resident("VmRSS"), [], [], []
        peaks, best = {"training": 0, "evaluation": 0}, (0.0, 0.0)
        for number in range(1, config.train.num_epochs + 1):
            _forget_peak()
            result = trainer.train_epoch()
            peaks["training"] = max(peaks["training"], _resident("VmHWM"))
            seconds.append(result.seconds)
            ages.append(result.history_age)
            shares.append(result.history_share)
            if number % 5 == 0 or number == config.train.num_epochs:
                _forget_peak()
                scores = trainer.evaluate()
                peaks["evaluation"] = max(peaks["evaluation"], _resident("VmHWM"))
                best = max(best, (scores.val, scores.test))
    return {
        "val": best[0],
        "test": best[1],
        "seconds": statistics.median(seconds),
        "before": before,
        "age": statistics.mean(ages),
        "share": statistics.mean(shares),
        **peaks,
    }


def _alone(overrides: tuple[str, ...]) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(train, overrides).result()


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _forget_peak() -> None:
    """From here on, `VmHWM` is the peak of what follows (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _row(label: str, joined: str, found: list[dict[str, Any]]) -> list[str]:
    def percent(key: str) -> str:
        values = [100 * one[key] for one in found]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.2f}{spread}"

    mean = {key: statistics.mean(one[key] for one in found) for key in found[0]}
    memory = [f"{mean[key] / 2**20:.0f}" for key in ("training", "before", "evaluation")]
    late = [f"{mean['age']:.1f}", f"{100 * mean['share']:.1f}%"]
    return [label, joined, percent("test"), percent("val"), f"{mean['seconds']:.2f}", *memory, *late]


if __name__ == "__main__":
    main()
