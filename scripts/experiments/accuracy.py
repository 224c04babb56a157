"""What chunks and histories cost in accuracy: `python -m scripts.experiments.accuracy`.

Writes results/tables/accuracy.md; needs the graphs of GNNPAR_TEST_DATA. Every run is trained in one process
(one stage: more stages change results by rounding only, which hundreds of epochs amplify; one run is repeated
in two processes to show how far), two runs side by side. A finished run leaves a line in
results/tables/accuracy.jsonl; called again, the script trains what is missing there, on any machine. Runs
come in order of interest, so that a budget of minutes gives the best table it can. After a change of what is
computed, remove the lines that it concerns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnpar.config import compose
from gnnpar.dist.launch import ALLOCATOR
from scripts.bench.report import command_line, machine, save
from scripts.experiments.accuracy_cases import CASES, Run, list_runs
from scripts.experiments.accuracy_finished import Finished
from scripts.experiments.accuracy_page import accuracy_table, detail_table, notes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help="at most, in place of each case's own number")
    parser.add_argument("--budget-minutes", type=float, help="start no run after so many")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("results/tables/accuracy.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/tables/accuracy.md"))
    parser.add_argument(
        "--estimate", action="store_true", help="say from a few epochs how long all would take"
    )
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    os.environ.update(ALLOCATOR, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    data = Path(os.environ["GNNPAR_TEST_DATA"]).absolute()
    runs = list_runs(args.cases, args.seeds, data, args.epochs)
    if args.estimate:
        _estimate(runs, args.processes)
        return
    finished = Finished.read(args.runs)
    late = _train_missing(runs, finished, args)
    found = [(run, finished[run]) for run in runs if run in finished]
    parts = [
        notes(args.cases, args.seeds, args.epochs),
        accuracy_table(found, args.cases, len(args.seeds)),
        detail_table(found, args.cases, len(args.seeds)),
        *([f"Incomplete: {late} of {len(runs)} runs did not fit into the budget."] if late else []),
        *_two_stages([run for run, _ in found], finished, late == 0),
        f"Command: `{command_line('scripts.experiments.accuracy')}`",
        machine(),
    ]
    save(args.out, "Accuracy under chunks and histories", parts)


def train(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Train in this process, with one thread: the summary of `train_loop`, and the CPU seconds it took."""
    import torch

    from gnnpar.data import load
    from gnnpar.dist import Context
    from gnnpar.train.job import make_model
    from gnnpar.train.loop import train_loop
    from gnnpar.train.run import prepare
    from gnnpar.train.trainer import Trainer

    torch.set_num_threads(1)
    config = compose(overrides)
    graph = load(config.dataset)
    trainer = Trainer(make_model(config, graph), prepare(config, graph, None), config, Context.single())
    start = time.process_time()
    summary = train_loop(trainer, config, lambda _: None).summary
    return summary | {"cpu_s": time.process_time() - start}


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _train_missing(runs: list[Run], finished: Finished, args: argparse.Namespace) -> int:
    """Train what is not finished; the number of runs that were not started for lack of time."""
    missing = [run for run in runs if run not in finished]
    start, total, done = time.monotonic(), len(missing), 0
    running: dict[Future[dict[str, Any]], Run] = {}
    with _pool(args.processes) as pool:
        while missing or running:
            minutes = (time.monotonic() - start) / 60
            over = args.budget_minutes is not None and minutes > args.budget_minutes
            while missing and not over and len(running) < args.processes:
                run = missing.pop(0)
                running[pool.submit(train, (*run.overrides, *run.place))] = run
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                run, result, done = running.pop(future), future.result(), done + 1
                finished.add(run, result)
                print(
                    f"[{done}/{total}, {(time.monotonic() - start) / 60:.1f} min] {CASES[run.case].label}, "
                    f"{run.variant}, seed {run.seed}: test {100 * result['test_accuracy']:.1f}, best epoch "
                    f"{result['best_epoch']} of {result['num_epochs']}, {result['total_time_s']:.0f} s",
                    file=sys.stderr,
                )
    return len(missing)


def _two_stages(runs: list[Run], finished: Finished, train: bool) -> list[str]:
    """Train the first finished GNNPipe run again in two processes, and say whether it found the same.

    Args:
        train: False: say it only if that was done before.
    """
    from gnnpar.train.run import run as launch

    first = next((run for run in runs if run.variant == "γ = 1"), None)
    if first is None:
        return []
    again = replace(first, variant="two stages", overrides=(*first.overrides, "parallel.stages=2"))
    if again not in finished and not train:
        return []
    if again not in finished:
        with tempfile.TemporaryDirectory() as folder:
            config = compose((*again.overrides, *again.place, f"run.dir={folder}/run"))
            finished.add(again, launch(config).summary)
    one, two = finished[first], finished[again]
    said = [
        f"{label}: test {100 * found['test_accuracy']:.2f}, validation {100 * found['val_accuracy']:.2f}, "
        f"best epoch {found['best_epoch']} of {found['num_epochs']}"
        for label, found in (("One stage", one), ("two stages in two processes", two))
    ]
    keys = ("test_accuracy", "val_accuracy", "best_epoch", "num_epochs")
    same = all(one[key] == two[key] for key in keys)
    verdict = "The same." if same else "Different by rounding: sums at the stage boundary have another order."
    return [f"{CASES[first.case].label}, γ = 1, seed {first.seed}: {'; '.join(said)}. {verdict}"]


def _estimate(runs: list[Run], processes: int) -> None:
    """CPU seconds of each case and variant, from a few epochs and the evaluations among them."""
    few, total = 10, 0.0
    seeds = {run.seed for run in runs}
    chosen = {(run.case, run.variant): run for run in runs}
    with _pool(processes) as pool:
        futures = {
            key: pool.submit(train, (*run.overrides, *run.place, f"train.num_epochs={few}"))
            for key, run in chosen.items()
        }
        for key, future in futures.items():
            found, num_epochs = future.result(), compose(chosen[key].overrides).train.num_epochs
            seconds = found["cpu_s"] / few * num_epochs
            total += seconds * len(seeds)
            print(
                f"{key[0]:10} {key[1]:13} CPU {found['cpu_s'] / few:.3f} s an epoch, evaluation included; "
                f"{seconds:.0f} s for {num_epochs}",
                flush=True,
            )
    minutes = total / 60
    print(f"all: at most {minutes:.0f} CPU minutes, {minutes / processes:.0f} on {processes} quiet cores")


if __name__ == "__main__":
    main()
