"""`run` and `fit`: from a configuration, or from a model and a graph in memory, to a finished run."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch import ChunkedGraph
from gnnpar.config.compose import compose
from gnnpar.config.schema import DatasetConfig, RunConfig
from gnnpar.data.foreign import as_graph
from gnnpar.data.home import data_home
from gnnpar.dist import Context, Mesh
from gnnpar.dist.context import check_device
from gnnpar.dist.launched import Membership, under_launcher
from gnnpar.errors import Faults, InputError
from gnnpar.graph import Graph, validate
from gnnpar.history import foreign_histories
from gnnpar.model import Model
from gnnpar.parallel import halo_faults
from gnnpar.partition import Partition, degree_cost, partition_from_config, report
from gnnpar.plan import stage_faults
from gnnpar.runtime import slicing_faults
from gnnpar.train.job import Job, make_model, pickle_model, run_rank
from gnnpar.train.order import build_schedule, runs_by_branch, schedule_faults
from gnnpar.train.rundir import check_run_dir, new_run_dir
from gnnpar.train.sampled_feed import sampling_faults

logger = logging.getLogger(__name__)

__all__ = ["RunResult", "cut", "fit", "prepare", "run"]


@dataclass(frozen=True)
class RunResult:
    """What a finished run found. `summary` holds every field of `summary.json`; the main ones are attributes.

    `test_accuracy` and `val_accuracy` are what `metric` says: "accuracy" (of multi-labels: of all entries) or
    "rocauc".

    Attributes:
        run_dir: where everything was written.
        parameters: of the best validation score, buffers included, by global name: a state dict.
    """

    run_dir: Path
    summary: dict[str, Any]
    parameters: dict[str, Tensor]

    def __repr__(self) -> str:
        scores = f"test {self.metric} {self.test_accuracy:.4f}, validation {self.val_accuracy:.4f}"
        return f"RunResult({scores}, best epoch {self.best_epoch}, {self.run_dir})"

    @classmethod
    def read(cls, run_dir: Path) -> RunResult:
        """The result that a run wrote."""
        written = json.loads((run_dir / "summary.json").read_text())
        summary = {key: math.nan if value is None else value for key, value in written.items()}
        return cls(run_dir, summary, torch.load(run_dir / "model.pt", weights_only=True))

    @property
    def metric(self) -> str:
        return str(self.summary["metric"])

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
    """Run a configuration from its dataset on, in processes of its own: `parallel.ways` a stage.

    Raises `InputError` before anything is written where the configuration, the data or the model are at
    fault, and `RunError` where a process fails.
    """
    from gnnpar.data import load

    return start(config, lambda: load(config.dataset), None, command)


def fit(
    model: Model,
    graph: Any,
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
        graph: a `Graph`, a PyG `Data` or a `DGLGraph` (converted by `gnnpar.from_pyg`, `gnnpar.from_dgl`).
        system: name of a preset.
        stages, chunks: `parallel.stages` and `batch.num_chunks`, where the preset's do not fit.
        overrides: any other keys, as on the command line: `["train.lr=0.01", "seed=3"]`.
    """
    keys = [f"system={system}", "model.name=custom", f"model.num_layers={model.num_layers}", *overrides]
    keys += [f"parallel.stages={stages}"] if stages is not None else []
    keys += [f"batch.num_chunks={chunks}"] if chunks is not None else []
    config = compose(keys)
    found = as_graph(graph)
    dataset = DatasetConfig(kind="memory", name=found.name)
    network = replace(config.model, name="custom", num_layers=model.num_layers)
    result = start(replace(config, dataset=dataset, model=network), lambda: found, model, ())
    model.load_state_dict(result.parameters)
    return result


def prepare(config: RunConfig, graph: Graph, model: Model | None) -> ChunkedGraph:
    """Check everything that can be checked without a process, and cut the graph. Writes nothing."""
    faults = Faults(f"run on {graph.name}")
    with faults.collected():
        check_device(config.device)
    faults.extend(validate(graph))
    mesh = Mesh.of(config)
    num_parts, slot_size = _parts(config)
    if num_parts > graph.num_nodes:
        most = graph.num_nodes // slot_size
        what = "chunks"
        if slot_size > 1:
            what = f"micro-batches of {slot_size} chunks each, for parallel.ways={list(mesh.ways)}"
        faults.add(
            f"batch.num_chunks: {config.batch.num_chunks} {what}, but the graph has only "
            f"{graph.num_nodes} vertices; use {f'{most} or fewer' if most else 'fewer ways'}"
        )
    if config.train.metric == "rocauc" and not graph.multi_label and graph.num_classes > 2:
        faults.add(
            f"train.metric: rocauc needs two classes or multi-label targets; {graph.name} has "
            f"{graph.num_classes} classes, so use accuracy"
        )
    if graph.x is None:
        faults.add("features: the graph has none, but a model reads them; give it x")
    if graph.x is None or graph.num_classes == 0:
        faults.raise_if_any()  # no model can be made for it
    network = model if model is not None else make_model(config, graph)
    of_schedule = schedule_faults(config)
    faults.extend(of_schedule)
    if not of_schedule:
        faults.extend(
            stage_faults(config, network, build_schedule(config).num_stages, runs_by_branch(config))
        )
    faults.extend(network.check(graph))
    faults.extend(sampling_faults(config, network))
    if network.chunk_dependent and not config.batch.independent and not mesh.is_plain:
        faults.add(
            "parallel.ways: the model normalises over all rows that run together (such as model.norm=batch), "
            "and ways do not reduce such statistics within a pass; use model.norm=layer, "
            "batch.kind=clusters, or parallel.ways=1"
        )
    if network.chunk_dependent and config.weights.policy != "flush":
        faults.add(
            "weights.policy: the model normalises over all rows that run together (such as model.norm=batch) "
            "and merges what it saw when a step ends, which none does without a flush; use model.norm=layer, "
            "or weights.policy=flush"
        )
    if network.chunk_dependent and config.batch.joined > 1:
        faults.add(
            "batch.joined: the model normalises over all rows that run together (such as model.norm=batch), "
            "and joined chunks do so one by one; use model.norm=layer, or fewer batch.num_chunks"
        )
    if network.chunk_dependent and config.trace.history_error:
        faults.add(
            "trace.history_error: the model normalises over all rows that run together (such as "
            "model.norm=batch), so no embedding of it is the exact one; leave it out, or use model.norm=layer"
        )
    if config.parallel.split == "features":
        faults.extend(slicing_faults(network))
    faults.extend(halo_faults(config, network))
    partition = None
    if config.partition.path is not None:  # cheap to read: its faults come with the others
        with faults.collected():
            partition = cut(config, graph)
    faults.raise_if_any()
    if graph.multi_label and bool((graph.y.sum(1) == 1).all()):
        logger.warning(
            "labels: %s has one 1 in every row of y, but a matrix y is taken as multi-label, each column for "
            "itself; for classes, give y.argmax(1)",
            graph.name,
        )
    partition = partition or cut(config, graph)
    cost = degree_cost(graph, config.partition.cost_vertex, config.partition.cost_edge)
    chunked = ChunkedGraph.build(graph, partition, mesh.slot_size)
    if config.history.store == "disk" and config.history.dir is not None:
        faults.extend(foreign_histories(Path(config.history.dir), chunked.graph))
        faults.raise_if_any()
    logger.info("%s", report(graph, partition, cost, max(mesh.ways)).summary())
    return chunked


def cut(config: RunConfig, graph: Graph) -> Partition:
    """The graph in as many parts as the run has chunks: read from `partition.path`, or cut (and cached)."""
    num_parts, slot_size = _parts(config)
    cache = data_home() / "partitions"
    return partition_from_config(graph, config.partition, num_parts, cache_dir=cache, slot_size=slot_size)


def _parts(config: RunConfig) -> tuple[int, int]:
    """Parts that the vertices are cut into, and how many of them run together. Mini-batches are drawn anew:
    for them the parts are clusters, or what evaluation goes by."""
    if config.batch.sampled:
        return config.batch.num_chunks, 1
    mesh = Mesh.of(config)
    return mesh.num_chunks, mesh.slot_size


def start(
    config: RunConfig, graph: Callable[[], Graph], model: Model | None, command: Sequence[str]
) -> RunResult:
    """Run in processes of our own, one a rank; or as one of the ranks that torchrun or srun started."""
    with ExitStack() as held:

        def make() -> Job:
            return write_job(config, graph(), model, command, held)

        return as_rank(config, make) if under_launcher() else as_parent(config, make)


def as_parent(config: RunConfig, make: Callable[[], Job]) -> RunResult:
    """Prepare, start one process a rank, wait, and read the result."""
    from gnnpar.dist.launch import launch_workers

    check_run_dir(config)  # before data is read
    job = make()
    try:
        launch_workers(job.run_dir, Mesh.of(config).size, config.launch)
    except (KeyboardInterrupt, SystemExit):
        logger.warning("stopped; what was written until then is in %s", job.run_dir)
        raise
    finally:
        job.remove()
    return RunResult.read(job.run_dir)


def as_rank(config: RunConfig, make: Callable[[], Job]) -> RunResult:
    """This process is a rank already: rank 0 prepares, all run, rank 0 writes.

    The hosts must share the run directory and the dataset's folder.
    """
    member, mesh = Membership.join(config.launch.timeout_s), Mesh.of(config)
    if member.world_size != mesh.size:
        need = f"{config.parallel.stages} stages need as many processes"
        cure = f"set parallel.stages={member.world_size}"
        if not mesh.is_plain:
            need = f"stages of {list(mesh.ways)} ways need {mesh.size} processes"
            cure = "make the numbers of parallel.ways, times parallel.replicas, add up to that"
        text = f"parallel.stages: {need}, but the launcher started {member.world_size}; {cure}"
        raise InputError("configuration", [text])
    job = Job(Path(member.share(lambda: str(make().run_dir), "preparing the run")))
    context = Context.join(
        member.rank,
        member.world_size,
        device=config.device,
        timeout_s=config.launch.timeout_s,
        store=member.store,
    )
    try:
        run_rank(job, context)
        context.barrier("finishing")
    finally:
        context.close()
        if context.is_first:
            job.remove()
    return RunResult.read(job.run_dir)


def write_job(
    config: RunConfig, graph: Graph, model: Model | None, command: Sequence[str], held: ExitStack
) -> Job:
    """Everything that precedes the first process; nothing is written where something is at fault.

    Args:
        held: keeps the run directory from other runs until it closes.
    """
    pickled = pickle_model(model) if model is not None else None
    chunked = prepare(config, graph, model)
    job = Job(held.enter_context(new_run_dir(config, command)))
    job.write(chunked, pickled)
    return job
