"""Graphs in chunks, trainers on them, and the dense algebra that they must agree with."""

import torch
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import (
    BatchConfig,
    HistoryConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    TrainConfig,
)
from gnnpar.dist import Context
from gnnpar.train.job import make_model
from gnnpar.train.trainer import Trainer

__all__ = ["chunked_graph", "dense_operator", "make_config", "make_trainer", "visible_cut"]


def chunked_graph(num_chunks=4, graph=None, **keys):
    """A tiny graph (`keys`: of `tiny_graph`) renumbered into chunks of uneven sizes."""
    graph = tiny_graph(**keys) if graph is None else graph
    chunk_of = chunk_assignment(graph, num_chunks)
    offsets = (0, *torch.bincount(chunk_of, minlength=num_chunks).cumsum(0).tolist())
    return ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)


def dense_operator(graph, operator):
    """Â `[N, N]` of a fixed linear aggregation."""
    n = graph.num_nodes
    weight = torch.ones(graph.num_edges).double() if graph.edge_weight is None else graph.edge_weight
    a = torch.zeros(n, n).double()
    a.index_put_((graph.destinations, graph.indices.long()), weight, accumulate=True)
    a += torch.eye(n) * operator.self_loops
    degree = a.sum(1)
    if operator.norm == "sum":
        return a
    if operator.norm == "mean":
        return torch.where(degree > 0, 1 / degree, 0.0)[:, None] * a
    root = torch.where(degree > 0, degree**-0.5, 0.0)
    return root[:, None] * a * root


def visible_cut(chunk, position, current, history):
    """X̃ `[N, K]` that a chunk reads; `position` `[N]` is when each vertex runs in the step."""
    here = position[chunk.start]
    return torch.where((position <= here)[:, None], current, history)


def make_config(model=None, *, chunks=4, history=None, **keys):
    """A float64 run with SGD; `keys` go to `RunConfig`."""
    defaults = {
        "dtype": "float64",
        "model": ModelConfig(
            **{"name": "gcnii", "num_layers": 3, "hidden": 6, "dropout": 0.3} | (model or {})
        ),
        "batch": BatchConfig(num_chunks=chunks),
        "history": HistoryConfig(**{"mode": "latest", "period": 2, "gamma": 1.0} | (history or {})),
        "optimizer": OptimizerConfig(name="sgd"),
        "train": TrainConfig(lr=0.1, num_epochs=5),
        "parallel": ParallelConfig(stages=1),
        "memory": MemoryConfig(),
    }
    return RunConfig(**defaults | keys)


def make_trainer(config, *, graph=None, model=None, context=None):
    chunked = chunked_graph(config.batch.num_chunks, graph)
    model = make_model(config, chunked.graph) if model is None else model
    return Trainer(model, chunked, config, Context.single() if context is None else context)
