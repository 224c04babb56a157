"""How layers are shared out over stages: by hand, or so that the slowest stage is as fast as possible."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import torch

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context
from gnnpar.history import HistoryPolicy, Reads, ReadsPlanner
from gnnpar.model import LayerStack
from gnnpar.plan.balance import balance_stages
from gnnpar.runtime import Stage, build_stage

__all__ = ["plan_stages", "profile_layers", "stage_faults"]


def plan_stages(
    model: LayerStack, chunked: ChunkedGraph, config: RunConfig, context: Context
) -> tuple[int, ...]:
    """Entries of `model.all_layers()` per stage, the same on all ranks.

    The encoder goes with the first layer and the decoder with the last. Without `parallel.layers_per_stage`,
    rank 0 times every layer on one chunk and minimises the slowest stage (GNNPipe's dynamic programme).
    """
    stages, given, num_layers = context.world_size, config.parallel.layers_per_stage, len(model.layers)
    if given is not None:
        counts = list(given)
    elif stages == 1:
        counts = [num_layers]
    else:
        costs = profile_layers(model, chunked, config) if context.is_first else []
        costs = context.broadcast_object(costs, 0, "sharing the profile")
        merged = [costs[0] + costs[1], *costs[2:-2], costs[-2] + costs[-1]]
        counts = list(balance_stages(merged, stages))
    counts[0] += 1
    counts[-1] += 1
    return tuple(counts)


def stage_faults(config: RunConfig, num_layers: int) -> list[str]:
    """What is wrong with the stages that a configuration asks of a model with so many graph layers."""
    stages, given = config.parallel.stages, config.parallel.layers_per_stage
    if stages > num_layers:
        return [
            f"parallel.stages: {stages} stages, but the model has {num_layers} layers; "
            f"use {num_layers} or fewer"
        ]
    if given is not None and (len(given) != stages or sum(given) != num_layers):
        return [
            f"parallel.layers_per_stage: {list(given)} must be {stages} numbers (parallel.stages) with sum "
            f"{num_layers} (the model's layers)"
        ]
    return []


def profile_layers(
    model: LayerStack, chunked: ChunkedGraph, config: RunConfig, repeats: int = 3
) -> Sequence[float]:
    """Seconds of every layer, forward and backward over one chunk of middling cost.

    Each layer runs as a stage of its own through the same code as in training; the least of `repeats` counts.
    """
    chunk = _middling(chunked)
    policy = HistoryPolicy("latest", 1, 1.0, 1)
    reads = ReadsPlanner(chunked, policy, 1).exact
    device = torch.device(config.device)
    model = copy.deepcopy(model)  # statistics and gradients of the run must not know of this
    costs = []
    for index in range(len(model.all_layers())):
        stage = build_stage(model, chunked, [index], 1, config, device)
        costs.append(min(_time(stage, chunk, reads, config.dtype) for _ in range(repeats)))
    return costs


def _middling(chunked: ChunkedGraph) -> Chunk:
    indptr = chunked.graph.indptr
    by_edges = sorted(chunked.chunks, key=lambda chunk: int(indptr[chunk.stop] - indptr[chunk.start]))
    return by_edges[len(by_edges) // 2]


def _time(stage: Stage, chunk: Chunk, reads: Reads, dtype: str) -> float:
    number = getattr(torch, dtype)
    given = {chunk: [torch.ones(chunk.num_rows, *spec.tail, dtype=number) for spec in stage.receives]}
    back = {chunk: [torch.ones(chunk.num_rows, *s.tail, dtype=number) for s in stage.sends if s.needs_grad]}
    start = time.perf_counter()
    stage.forward((chunk,), given, reads, 0)
    stage.backward((chunk,), back, reads, 0)
    return time.perf_counter() - start
