"""From a model and a graph to the `Stage` that one rank runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.graph.norm import PullScales, scales
from gnnpar.history import CutStore, HistoryPolicy, MappedRows
from gnnpar.model import FEATURES, Edge, Layer, Model, Pull, Push, TensorSpec
from gnnpar.parallel import Halo
from gnnpar.runtime.aggregation import Aggregation, PullAggregation, PushAggregation
from gnnpar.runtime.local import LocalHead
from gnnpar.runtime.stage import Stage
from gnnpar.runtime.targets import Targets

__all__ = ["build_stage", "needs_two_copies", "pull_scales"]


def needs_two_copies(model: Model, policy: HistoryPolicy, recompute: bool) -> bool:
    """True where one buffer a layer cannot hold what is read: a snapshot beside the live rows, or (to run an
    operator on single edges again) rows that the step has overwritten since. A step of some chunks does not
    write a whole copy; there the operator remembers what it read."""
    push = any(isinstance(layer.operator, Push) for layer in model.all_layers())
    overwritten = policy.mode == "latest" and policy.steps_per_epoch == 1
    return policy.mode == "snapshot" or (overwritten and push and recompute)


def pull_scales(layers: Sequence[Layer], graph: Graph, dtype: torch.dtype) -> list[PullScales | None]:
    """For every layer that aggregates, the scales of its operator on `graph`; None where it is no `Pull`."""
    known: dict[Pull, PullScales] = {}
    found: list[PullScales | None] = []
    for layer in layers:
        if isinstance(layer.operator, Pull):
            if layer.operator not in known:
                known[layer.operator] = scales(graph, layer.operator, dtype)
            found.append(known[layer.operator])
        elif layer.operator is not None:
            found.append(None)
    return found


def build_stage(
    model: Model,
    chunked: ChunkedGraph,
    indices: Sequence[int],
    copies: int,
    config: RunConfig,
    device: torch.device,
    payloads: Mapping[Edge, Sequence[TensorSpec]] | None = None,
    number: int = 0,
    halo: Halo | None = None,
    files: Path | None = None,
) -> Stage:
    """The stage of the layers with these consecutive global indices.

    Args:
        payloads: what crosses the edges between stages (`Model.payloads`), of which this is one.
        number: of this stage.
        halo: where several ways share it and their chunks read each other.
        files: the cuts are kept in files, whose names start with this one's; None: in memory.

    Memory: for every aggregation (copies + 1) · N · K elements.
    """
    layers = model.all_layers()
    last = len(layers) - 1
    payloads = payloads or {}
    own = [layers[index] for index in indices]
    reads_features = indices[0] == 0 or any(FEATURES in layer.reads for layer in own)
    graph_layers = [layer for layer in own if layer.operator is not None]
    of_operators = pull_scales(own, chunked.graph, getattr(torch, config.dtype))
    aggregations: list[Aggregation] = []
    policy = HistoryPolicy.of(config)
    aggregating = [index for index, layer in zip(indices, own, strict=True) if layer.operator is not None]
    for index, layer, found in zip(aggregating, graph_layers, of_operators, strict=True):
        mapped = None
        if files is not None:
            mapped = MappedRows(files.with_name(f"{files.name}-layer{index}.rows"), chunked.graph, index)
        cut = CutStore(chunked.graph.num_nodes, copies, mapped)
        if found is not None:
            packs = policy.steps_per_epoch > 1 and not policy.compensate and halo is None
            compensates = policy.compensate
            aggregations.append(PullAggregation(cut, found, packs=packs, compensates=compensates))
            continue
        remembers = config.memory.recompute and policy.mode == "latest" and policy.steps_per_epoch > 1
        aggregations.append(PushAggregation(cut, layer, remembers, policy.compensate))
    targets = Targets(chunked, device) if indices[-1] == last else None
    sends = {target: specs for (source, target), specs in payloads.items() if source == number}
    head = None
    if config.weights.policy == "local" and targets is None:
        width = next(spec.tail[-1] for specs in sends.values() for spec in specs if spec.name == "h")
        head = LocalHead(
            width,
            chunked.graph.num_classes,
            config.weights.head == "mlp",
            Targets(chunked, device),
            config.seed + number,
            getattr(torch, config.dtype),
            device,
        )
    return Stage(
        list(zip(indices, own, strict=True)),
        aggregations,
        {source: specs for (source, target), specs in payloads.items() if target == number},
        sends,
        node_ids=chunked.graph.node_ids,
        seed=config.seed,
        features=_Features(chunked, device) if reads_features else None,
        targets=targets,
        recompute=config.memory.recompute,
        keeps=model.keeps,
        halo=halo,
        head=head,
    )


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
