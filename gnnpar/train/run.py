"""`run` and `fit`: from a configuration, or from a model and a graph in memory, to a finished run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch import ChunkedGraph
from gnnpar.config.compose import compose
from gnnpar.config.schema import RunConfig
from gnnpar.dist.context import check_device
from gnnpar.errors import Faults
from gnnpar.graph import Graph, validate
from gnnpar.model import LayerStack
from gnnpar.partition import degree_cost, partition_graph
from gnnpar.plan import stage_faults
from gnnpar.train.job import Job, make_model

__all__ = ["RunResult", "fit", "prepare", "run"]


@dataclass(frozen=True)
class RunResult:
    """What a finished run found. `summary` holds every field of `summary.json`; the main ones are attributes.

    Attributes:
        run_dir: where everything was written.
        parameters: of the best validation score, by global name.
    """

    run_dir: Path
    summary: dict[str, Any]
    parameters: dict[str, Tensor]

    @classmethod
    def read(cls, run_dir: Path) -> RunResult:
        """The result that a run wrote."""
        summary = json.loads((run_dir / "summary.json").read_text())
        return cls(run_dir, summary, torch.load(run_dir / "model.pt", weights_only=True))

    @property
    def test_accuracy(self) -> float:
        return float(self.summary["test_accuracy"])

    @property
    def val_accuracy(self) -> float:
        return float(self.summary["val_accuracy"])

    @property
    def best_epoch(self) -> int:
        return int(self.summary["best_epoch"])

    @property
    def epoch_time_s(self) -> float:
        return float(self.summary["epoch_time_s"])


def run(config: RunConfig, command: Sequence[str] = ()) -> RunResult:
    """Run a configuration from its dataset on, in `parallel.stages` processes of its own.

    Raises `InputError` before anything is written where the configuration, the data or the model are at
    fault, and `RunError` where a process fails.
    """
    from gnnpar.data import load

    return launch(config, load(config.dataset), None, command)


def fit(
    model: LayerStack,
    graph: Graph,
    system: str = "gnnpipe",
    *,
    stages: int | None = None,
    chunks: int | None = None,
    overrides: Sequence[str] = (),
) -> RunResult:
    """Train a model of one's own on a graph of one's own.

    The model's parameters become those of the best validation score. Layers may be defined anywhere, a
    notebook included.

    Args:
        system: name of a preset.
        stages, chunks: `parallel.stages` and `batch.num_chunks`, where the preset's do not fit.
        overrides: any other keys, as on the command line: `["train.lr=0.01", "seed=3"]`.
    """
    keys = [f"system={system}", *overrides]
    keys += [f"parallel.stages={stages}"] if stages is not None else []
    keys += [f"batch.num_chunks={chunks}"] if chunks is not None else []
    config = compose(keys)
    dataset = replace(config.dataset, kind="memory", name=graph.name)
    network = replace(config.model, name="custom", num_layers=len(model.layers))
    result = launch(replace(config, dataset=dataset, model=network), graph, model, ())
    model.load_state_dict(result.parameters, strict=False)
    return result


def prepare(config: RunConfig, graph: Graph, model: LayerStack | None) -> ChunkedGraph:
    """Check everything that can be checked without a process, and cut the graph. Writes nothing."""
    faults = Faults(f"run on {graph.name}")
    check_device(config.device)
    faults.extend(validate(graph))
    network = model if model is not None else make_model(config, graph)
    faults.extend(stage_faults(config, len(network.layers)))
    if config.batch.num_chunks > graph.num_nodes:
        faults.add(
            f"batch.num_chunks: {config.batch.num_chunks} chunks, but the graph has only "
            f"{graph.num_nodes} vertices"
        )
    faults.raise_if_any()
    faults.extend(network.check(graph))
    faults.raise_if_any()
    cost = degree_cost(graph, config.partition.cost_vertex, config.partition.cost_edge)
    partition = partition_graph(
        graph,
        config.batch.num_chunks,
        method=config.partition.method,
        seed=config.partition.seed,
        vertex_cost=cost,
        inner_order=config.partition.inner_order,
    )
    return ChunkedGraph.build(graph, partition)


def launch(config: RunConfig, graph: Graph, model: LayerStack | None, command: Sequence[str]) -> RunResult:
    """Prepare, start one process per stage, wait, and read the result."""
    from gnnpar.dist.launch import launch_workers
    from gnnpar.train.rundir import create_run_dir

    chunked = prepare(config, graph, model)
    run_dir = create_run_dir(config, command)
    job = Job(run_dir)
    try:
        job.write(chunked, model)
        launch_workers(run_dir, config.parallel.stages, config.launch)
    finally:
        job.remove()
    return RunResult.read(run_dir)
