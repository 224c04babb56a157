"""From a model and a graph to the `Stage` that one rank runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.graph.features import SparseRows
from gnnpar.graph.norm import scales
from gnnpar.history import CutStore, HistoryPolicy
from gnnpar.model import Layer, LayerStack, Pull, Push
from gnnpar.runtime.aggregation import Aggregation, PullAggregation, PushAggregation
from gnnpar.runtime.stage import Stage
from gnnpar.runtime.targets import Targets

__all__ = ["build_stage", "needs_two_copies"]


def needs_two_copies(model: LayerStack, policy: HistoryPolicy, recompute: bool) -> bool:
    """True where one buffer a layer cannot hold what is read: a snapshot beside the live rows, or (to run an
    operator on single edges again) rows that the step has overwritten since."""
    push = any(isinstance(layer.operator, Push) for layer in model.all_layers())
    return policy.mode == "snapshot" or (policy.mode == "latest" and push and recompute)


def build_stage(
    model: LayerStack,
    chunked: ChunkedGraph,
    indices: Sequence[int],
    copies: int,
    config: RunConfig,
    device: torch.device,
) -> Stage:
    """The stage of the layers with these consecutive global indices.

    Memory: for every aggregation (copies + 1) · N · K elements.
    """
    layers = model.all_layers()
    last = len(layers) - 1
    payloads = model.payload_specs(chunked.graph)
    dtype = getattr(torch, config.dtype)
    aggregations = [
        _aggregation(layers[index], CutStore(chunked.graph.num_nodes, copies), chunked, dtype)
        for index in indices
        if layers[index].operator is not None
    ]
    return Stage(
        [(index, layers[index]) for index in indices],
        aggregations,
        payloads[indices[0] - 1] if indices[0] > 0 else (),
        payloads[indices[-1]] if indices[-1] < last else (),
        node_ids=chunked.graph.node_ids,
        seed=config.seed,
        features=_Features(chunked, device) if indices[0] == 0 else None,
        targets=Targets(chunked, device) if indices[-1] == last else None,
        recompute=config.memory.recompute,
        keeps_h0=model.reads_h0,
    )


def _aggregation(layer: Layer, cut: CutStore, chunked: ChunkedGraph, dtype: torch.dtype) -> Aggregation:
    if isinstance(layer.operator, Pull):
        return PullAggregation(cut, scales(chunked.graph, layer.operator, dtype))
    return PushAggregation(cut, layer)


class _Features:
    """Input features chunk by chunk."""

    def __init__(self, chunked: ChunkedGraph, device: torch.device) -> None:
        x = chunked.graph.x
        assert x is not None
        self.x = x.to(device)

    def __call__(self, chunk: Chunk) -> Tensor | SparseRows:
        if isinstance(self.x, SparseRows):
            return self.x.rows(chunk.start, chunk.stop)
        return self.x[chunk.start : chunk.stop]
