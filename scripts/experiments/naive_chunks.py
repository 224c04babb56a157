"""What GPipe by vertex number does to a GNN: `python -m scripts.experiments.naive_chunks`.

Writes results/tables/naive_chunks.md; needs PubMed in GNNPAR_TEST_DATA. Accuracy: every run is trained in one
process (stages change results by rounding only), seed by seed; a finished one leaves a line in
results/tables/naive_chunks.jsonl, and called again, the script trains what is missing. Times: some epochs of
every variant in two stages of one thread each, measured anew each time (`--times-only`: nothing else is).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.bench.report import command_line, machine, save
from scripts.experiments.accuracy_finished import Finished
from scripts.experiments.naive_chunks_cases import CASES, CHUNKS, NaiveRun, list_runs
from scripts.experiments.naive_chunks_page import page

TIMED_EPOCHS = 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--chunks", nargs="+", type=int, default=list(CHUNKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help="at most, in place of each case's own number")
    parser.add_argument("--budget-minutes", type=float, help="start no accuracy run after so many")
    parser.add_argument("--times-only", action="store_true", help="train nothing for accuracy, measure times")
    parser.add_argument("--no-times", action="store_true", help="measure no times")
    parser.add_argument("--runs", type=Path, default=Path("results/tables/naive_chunks.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/tables/naive_chunks.md"))
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    data = Path(os.environ["GNNPAR_TEST_DATA"]).absolute() / "pubmed.npz"
    runs = list_runs(args.cases, args.chunks, args.seeds, data, args.epochs)
    finished = Finished.read(args.runs)
    budget = 0.0 if args.times_only else args.budget_minutes
    _train_missing([run for run in runs if run not in finished], finished, budget)
    times = {} if args.no_times else _measure_times([run for run in runs if run.seed == args.seeds[0]])
    induced = {} if args.no_times else {chunks: _induce(data, chunks) for chunks in args.chunks if chunks > 1}
    found = [(run, finished[run]) for run in runs if run in finished]
    text = [f"Command: `{command_line('scripts.experiments.naive_chunks')}`", machine()]
    save(
        args.out,
        "GPipe by vertex number: the lesson of Dearing and Wang",
        [*page(found, times, induced, len(args.seeds), TIMED_EPOCHS), *text],
    )


def train(run: NaiveRun, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train in processes of its own: the summary, shares of edges cut, and scores without the edges cut."""
    import torch

    import gnnpar
    from gnnpar.batch import ChunkedGraph
    from gnnpar.config import compose
    from gnnpar.data import load
    from gnnpar.train.job import make_model
    from gnnpar.train.run import cut
    from gnnpar.train.run import run as launch

    with tempfile.TemporaryDirectory() as folder:
        keys = [*run.overrides, *run.place, *overrides, f"run.dir={folder}/run"]
        config = compose(keys)
        graph = load(config.dataset)
        if run.case == "gat":
            graph = graph.replace(x=graph.x.to_dense())  # type: ignore[union-attr]
            model = _gat(graph.num_features, graph.num_classes, config.seed)
            keys = [key for key in keys if not key.startswith(("dataset", "system"))]
            result = gnnpar.fit(model, graph, config.system, overrides=keys)
        else:
            result = launch(config)
            model = make_model(config, graph)
            model.load_state_dict(result.parameters)
    partition = cut(config, graph)
    isolated = ChunkedGraph.build(graph, partition).isolated.graph
    model.eval()
    with torch.no_grad():
        right = model(isolated).argmax(1) == isolated.y
    return result.summary | {
        "cut_share": 1 - isolated.num_edges / graph.num_edges,
        "test_accuracy_cut": float(right[isolated.test_mask].float().mean()),
    }


def _gat(num_features: int, num_classes: int, seed: int) -> Any:
    """Two GAT layers: 8 heads of 8, then one of a number a class. No encoder, no decoder."""
    import torch
    from torch import nn

    from gnnpar import LayerStack
    from gnnpar.model.layers import GAT

    torch.manual_seed(seed)
    drop = {"dropout": 0.6, "attention_dropout": 0.6}
    first = GAT(num_features, 8, heads=8, **drop)
    last = GAT(64, num_classes, heads=1, activation=None, **drop)
    return LayerStack(nn.Identity(), [first, last], nn.Identity())


def _train_missing(missing: list[NaiveRun], finished: Finished, budget: float | None) -> None:
    start = time.monotonic()
    for number, run in enumerate(missing, 1):
        minutes = (time.monotonic() - start) / 60
        if budget is not None and minutes >= budget:
            return
        result = train(run)
        epochs = result["num_epochs"]
        finished.add(run, result | {"cpu_s": epochs * sum(result["epoch_cpu_s"])})
        print(
            f"[{number}/{len(missing)}, {(time.monotonic() - start) / 60:.1f} min] {run.case}, "
            f"{run.variant}, {run.chunks} chunks, seed {run.seed}: test "
            f"{100 * result['test_accuracy']:.1f}, without cut edges "
            f"{100 * result['test_accuracy_cut']:.1f}, best epoch {result['best_epoch']} of {epochs}",
            file=sys.stderr,
            flush=True,
        )


def _measure_times(runs: list[NaiveRun]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Summaries of short runs in two stages, and of full batch in one process of two threads."""
    found = {}
    for run in runs:
        whole = run.variant == "full batch"
        where = ("parallel.stages=1", "launch.threads=2") if whole else ("parallel.stages=2",)
        if not whole and run.case == "gat":
            where = (*where, "parallel.layers_per_stage=[1,1]")
        few = (f"train.num_epochs={TIMED_EPOCHS}", f"train.eval_every={TIMED_EPOCHS}", "train.patience=null")
        found[run.case, run.variant, run.chunks] = train(run, (*where, *few))
    return found


def _induce(data: Path, chunks: int, repeats: int = 5) -> float:
    """CPU seconds, the least of some repeats, that PyG takes to make the subgraphs of `chunks` ranges."""
    import torch
    from torch_geometric.utils import subgraph

    from gnnpar.data import load

    torch.set_num_threads(1)
    graph = load("pubmed", path=str(data))
    ranges = torch.arange(graph.num_nodes).chunk(chunks)
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        for vertices in ranges:
            subgraph(vertices, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes)
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
