"""Schedules run live on clusters: configuration, clusters, what serial training and what ranks give."""

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from support.graphs import chunk_assignment, tiny_graph
from torch.nn import functional as F

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import (
    BatchConfig,
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from gnnpar.data import load
from gnnpar.partition import partition_graph
from gnnpar.train.job import make_model
from gnnpar.train.order import build_schedule
from gnnpar.train.trainer import Trainer

__all__ = [
    "LAYERS",
    "SerialStep",
    "clusters_of",
    "config_of",
    "differences",
    "pubmed",
    "record_steps",
    "serial_steps",
    "train_all",
]

LAYERS = 8


def config_of(name, ranks, micro_batches, **keys):
    """A small network with dropout on clusters, its layers dealt evenly to the stages of the schedule."""
    defaults = {
        "dtype": "float64",
        "model": ModelConfig(name="resgcn", num_layers=LAYERS, hidden=8, dropout=0.3, norm="layer"),
        "batch": BatchConfig(num_chunks=micro_batches, kind="clusters"),
        "schedule": ScheduleConfig(name=name),
        "parallel": ParallelConfig(stages=ranks),
        "optimizer": OptimizerConfig(name="adam"),
        "train": TrainConfig(lr=0.01, weight_decay=5e-4),
    }
    config = RunConfig(**defaults | keys)
    if "parallel" in keys:
        return config
    num_layers, num_stages = config.model.num_layers, build_schedule(config).num_stages
    ends = [num_layers * stage // num_stages for stage in range(num_stages + 1)]
    even = tuple(ends[stage + 1] - ends[stage] for stage in range(num_stages))
    return replace(config, parallel=ParallelConfig(stages=ranks, layers_per_stage=even))


def pubmed():
    """PubMed from the folder that GNNPAR_TEST_DATA names; None where it is unset."""
    folder = os.environ.get("GNNPAR_TEST_DATA")
    if not folder:
        return None
    path = str(Path(folder, "pubmed.npz"))
    dataset = DatasetConfig(name="pubmed", kind="npz", path=path, symmetrize=True, normalize="row")
    before = os.environ.get("GNNPAR_DATA")
    with tempfile.TemporaryDirectory() as home:
        os.environ["GNNPAR_DATA"] = home
        try:
            return load(dataset)
        finally:
            del os.environ["GNNPAR_DATA"]
            if before is not None:
                os.environ["GNNPAR_DATA"] = before


def clusters_of(graph, number):
    """`ChunkedGraph` of float64: METIS's clusters of a graph; of None, uneven ones of a tiny graph."""
    if graph is not None:
        chunked = ChunkedGraph.build(graph, partition_graph(graph, number))
    else:
        graph = tiny_graph(num_nodes=80)
        chunk_of = chunk_assignment(graph, number)
        offsets = (0, *torch.bincount(chunk_of, minlength=number).cumsum(0).tolist())
        chunked = ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)
    return chunked.to(torch.float64, torch.device("cpu"))


@dataclass(frozen=True)
class SerialStep:
    """Loss, gradients, and parameters after the update, of one step of serial training."""

    loss: float
    gradients: dict
    parameters: dict


def serial_steps(config, chunked, steps):
    """`[SerialStep]`: autograd and Adam on the graph without edges between clusters."""
    graph = chunked.isolated.graph
    model = make_model(config, graph).double()
    model.train()
    train = config.train
    optimizer = torch.optim.Adam(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    wanted = (graph.y >= 0) & graph.train_mask
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graph, seed=config.seed, step=step)[wanted], graph.y[wanted])
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        found.append(SerialStep(loss.item(), gradients, copied(dict(model.named_parameters()))))
    return found


def record_steps(trainer, steps):
    """Of every step (loss, [((replica, stage), gradients, parameters) of this rank's stages])."""
    found = []
    for _ in range(steps):
        loss = trainer.train_step().loss
        held = []
        for key, update in zip(trainer.executor.stages, trainer._updates, strict=True):
            gradients = {name: p.grad.clone() for name, p in update.named.items()}
            held.append((key, gradients, copied(update.named)))
        found.append((loss, held))
    return found


def train_all(context, configs, chunked, steps):
    """For the pool: `record_steps` of each configuration."""
    found = []
    for config in configs:
        trainer = Trainer(make_model(config, chunked.graph), chunked, config, context)
        found.append(record_steps(trainer, steps))
        context.barrier("before the next configuration")
    return found


def copied(named):
    return {name: p.detach().clone() for name, p in named.items()}


def differences(found, wanted):
    """Largest |Δ| of the tensors in `found`, in units of the largest element in `wanted`."""
    largest = max(float(g.abs().max()) for g in wanted.values())
    return max((float((g - wanted[name]).abs().max()) for name, g in found.items()), default=0.0) / largest
