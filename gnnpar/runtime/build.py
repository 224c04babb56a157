"""From a model and a graph to the `Stage` that one rank runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.graph.norm import PullScales, scales
from gnnpar.history import CutStore, HistoryPolicy, MappedRows
from gnnpar.model import FEATURES, Edge, Layer, Model, Pull, Push, TensorSpec
from gnnpar.parallel import FeatureSlices, Halo, PartByPart, Peers, SampledHalo, halo_faults
from gnnpar.runtime.aggregation import Aggregation, PullAggregation
from gnnpar.runtime.by_columns import PullByColumns
from gnnpar.runtime.local import LocalHead
from gnnpar.runtime.own_rows import OwnRowsPull, OwnRowsPush
from gnnpar.runtime.push import PushAggregation
from gnnpar.runtime.sampled import SampledStage
from gnnpar.runtime.stage import Stage
from gnnpar.runtime.targets import Targets
from gnnpar.runtime.variates import ControlVariates

__all__ = ["build_sampled_stage", "build_stage", "needs_two_copies", "pull_scales", "slicing_faults"]


def needs_two_copies(model: Model, policy: HistoryPolicy, recompute: bool) -> bool:
    """True where one buffer a layer cannot hold what is read: a snapshot beside the live rows, or (to run an
    operator on single edges again) rows that the step has overwritten since. A step of some chunks does not
    write a whole copy; there the operator remembers what it read."""
    push = any(isinstance(layer.operator, Push) for layer in model.all_layers())
    overwritten = policy.mode == "latest" and policy.steps_per_epoch == 1
    return policy.mode == "snapshot" or (overwritten and push and recompute)


def slicing_faults(model: Model) -> list[str]:
    """Why ways cannot split the features of this model's aggregations."""
    layers = zip(model.all_layers(), model.layer_names(), strict=True)
    found = [f"{name} ({type(layer).__name__})" for layer, name in layers if isinstance(layer.operator, Push)]
    if not found:
        return []
    return [
        f"parallel.split: {', '.join(found[:3])}{', …' if found[3:] else ''}: what an edge carries depends "
        "on whole rows (attention, or a message function), so a slice of the features is not enough; use "
        "parallel.split=vertices"
    ]


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

    Memory: for every aggregation (copies + 1) · N · K elements; of the way's rows alone where the ways split
    features or the stage aggregates sequentially.

    Raises:
        InputError: features are to be split, or a sample of rows read, and a layer cannot.
    """
    if config.parallel.split == "features" and (faults := slicing_faults(model)):
        raise InputError("configuration", faults)
    if faults := halo_faults(config, model):
        raise InputError("configuration", faults)
    layers = model.all_layers()
    last = len(layers) - 1
    payloads = payloads or {}
    own = [layers[index] for index in indices]
    graph_layers = [layer for layer in own if layer.operator is not None]
    of_operators = pull_scales(own, chunked.graph, getattr(torch, config.dtype))
    aggregate = _whole_rows(chunked.graph, copies, config, halo, files)
    if halo is not None and (config.parallel.split == "features" or config.memory.sequential):
        aggregate = _own_rows(Peers(chunked, halo.mesh, halo.column, halo.way, halo.transport), config)
    aggregating = [index for index, layer in zip(indices, own, strict=True) if layer.operator is not None]
    aggregations = [aggregate(*one) for one in zip(aggregating, graph_layers, of_operators, strict=True)]
    targets = Targets(chunked, device) if indices[-1] == last else None
    sends = {target: specs for (source, target), specs in payloads.items() if source == number}
    head = None
    if config.weights.policy == "local" and targets is None:
        # Where a branch ends, its rows go on as a carry.
        rows = {"h", model.keeps.get(indices[-1])}
        width = next(spec.tail[-1] for specs in sends.values() for spec in specs if spec.name in rows)
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
        features=_Features(chunked, device) if _reads_features(indices, own) else None,
        targets=targets,
        recompute=config.memory.recompute,
        keeps=model.keeps,
        halo=halo,
        head=head,
    )


Make = Callable[[int, Layer, PullScales | None], Aggregation]
"""Of a layer's global index, the layer, and the scales of its operator if it is fixed and linear."""


def _whole_rows(graph: Graph, copies: int, config: RunConfig, halo: Halo | None, files: Path | None) -> Make:
    """Aggregations with room for the rows of all vertices."""
    policy = HistoryPolicy.of(config)
    some = policy.steps_per_epoch > 1
    packs = some and not policy.compensate and halo is None
    remembers = some and config.memory.recompute and policy.mode == "latest"

    def make(index: int, layer: Layer, found: PullScales | None) -> Aggregation:
        mapped = None
        if files is not None:
            mapped = MappedRows(files.with_name(f"{files.name}-layer{index}.rows"), graph, index)
        cut = CutStore(graph.num_nodes, copies, mapped)
        if found is not None and isinstance(halo, SampledHalo):
            return PullByColumns(cut, found, halo)
        if found is not None:
            return PullAggregation(cut, found, packs=packs, compensates=policy.compensate)
        return PushAggregation(cut, layer, remembers, policy.compensate)

    return make


def _own_rows(peers: Peers, config: RunConfig) -> Make:
    """Aggregations of a way that keeps only its own rows."""
    parts = PartByPart(peers)
    product = FeatureSlices(peers) if config.parallel.split == "features" else parts

    def make(index: int, layer: Layer, found: PullScales | None) -> Aggregation:
        cut = CutStore(len(peers.own), 1, first=peers.own.start)
        return OwnRowsPush(cut, layer, parts) if found is None else OwnRowsPull(cut, found, product)

    return make


def build_sampled_stage(
    model: Model,
    graph: Graph,
    indices: Sequence[int],
    config: RunConfig,
    payloads: Mapping[Edge, Sequence[TensorSpec]] | None = None,
    number: int = 0,
) -> SampledStage:
    """The stage of the layers with these consecutive global indices, for mini-batches of `graph`.

    Args:
        payloads, number: as for `build_stage`.
    """
    layers, payloads = model.all_layers(), payloads or {}
    own = [layers[index] for index in indices]
    variates = []
    if config.history.control_variates:
        of_operators = pull_scales(own, graph, getattr(torch, config.dtype))
        variates = [ControlVariates(graph, found) for found in of_operators if found is not None]
    return SampledStage(
        list(zip(indices, own, strict=True)),
        {source: specs for (source, target), specs in payloads.items() if target == number},
        {target: specs for (source, target), specs in payloads.items() if source == number},
        ahead=sum(layer.operator is not None for layer in layers[indices[0] :]),
        node_ids=graph.node_ids,
        seed=config.seed,
        features=graph.x if _reads_features(indices, own) else None,
        targets=graph.y if indices[-1] == len(layers) - 1 else None,
        recompute=config.memory.recompute,
        keeps=model.keeps,
        variates=variates,
    )


def _reads_features(indices: Sequence[int], layers: Sequence[Layer]) -> bool:
    return indices[0] == 0 or any(FEATURES in layer.reads for layer in layers)


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
