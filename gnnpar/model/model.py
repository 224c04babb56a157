"""`Model`: layers in a global order, which stages cut and chunks run through."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as chained
from typing import cast

import torch
from torch import Tensor, nn

from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.model.adapters import Foreign, settle
from gnnpar.model.flow import Edge, chain, stage_edges, values_over_edges, values_read
from gnnpar.model.layer import FEATURES, Carries, Layer
from gnnpar.model.layers.join import Join
from gnnpar.model.locality import locality_faults
from gnnpar.model.rows import Rows
from gnnpar.model.tiny import tiny_graph
from gnnpar.model.trace import TensorSpec, Trace, trace
from gnnpar.model.whole import WholeGraph, apply_layer

__all__ = ["Model"]

_Signature = tuple[int, bool, bool, int, bool]


class Model(nn.Module):
    """`[N, F]` → `[N, C]`: what `LayerStack` and `LayerGraph` have in common.

    A model is a list of layers. Each takes the rows `h` that the one before it made (the first one: the input
    features) and the carries it reads. The place in the list is the global layer index, which keys dropout.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[_Signature, tuple[list[str], int | None]] = {}

    def all_layers(self) -> list[Layer]:
        """Every layer, encoder and decoder included; the position is the global layer index."""
        raise NotImplementedError

    def layer_names(self) -> list[str]:
        """Of every layer the prefix of its parameters' names."""
        raise NotImplementedError

    def branches_in_order(self) -> dict[str, list[range]]:
        """Of every branch the layers that no stage may separate, as runs of global indices.

        They are what `parallel.layers_per_stage` counts: a graph layer each, with the encoder, the start of a
        branch or the decoder beside it.
        """
        raise NotImplementedError

    @property
    def keeps(self) -> Mapping[int, str]:
        """Global index of a layer → name of the carry that its output becomes."""
        raise NotImplementedError

    @property
    def num_layers(self) -> int:
        """Layers as `parallel.layers_per_stage` counts them."""
        return sum(len(units) for units in self.branches_in_order().values())

    def units(self) -> list[range]:
        """The runs of `branches_in_order`, one branch after the other."""
        return list(chained.from_iterable(self.branches_in_order().values()))

    @property
    def chunk_dependent(self) -> bool:
        """True where a layer's result for a row depends on which rows share its micro-batch."""
        return any(layer.chunk_dependent for layer in self.all_layers())

    def commit(self) -> None:
        """End of a step: running statistics take up what the step's micro-batches saw."""
        for layer in self.all_layers():
            layer.commit()

    def check(self, graph: Graph) -> list[str]:
        """Faults of the model for graphs like `graph`, all at once; empty where it can be trained.

        A forward pass on a 12-vertex directed graph with the same kind of features checks the declared
        carries and the widths, and that every layer gives the same on parts of the graph; foreign ones are
        probed (see `gnnpar.model.adapters`). Done once for a kind of graph. Cost: milliseconds a layer.
        """
        signature = _signature(graph)
        if signature not in self._checked:
            names, layers = self._titles(), self.all_layers()
            found = self._trace(graph)
            faults = found.faults
            for i, passage in found.passages.items():
                foreign = any(isinstance(module, Foreign) for module in layers[i].modules())
                local = settle(passage) if foreign else locality_faults(passage)
                faults += [f"{names[i]}: {fault}" for fault in local]
            self._checked[signature] = faults, found.num_outputs
        faults, num_outputs = self._checked[signature]
        if not faults and (num_outputs is None or num_outputs < graph.num_classes):
            columns = "no columns" if num_outputs is None else f"{num_outputs} columns"
            return [f"decoder: gives {columns} for {graph.num_classes} classes; give it one a class"]
        return list(faults)

    def stage_edges(self, split: Sequence[int]) -> tuple[Edge, ...]:
        """The graph of stages that this model makes; a chain where no branch is cut off from another.

        Args:
            split: how many of `all_layers()` each stage has.
        """
        return stage_edges(self.all_layers(), self.keeps, split)

    def payloads(
        self, graph: Graph, split: Sequence[int], edges: Iterable[Edge] | None = None
    ) -> dict[Edge, tuple[TensorSpec, ...]]:
        """What crosses every edge between stages: `h`, then carries by name.

        Args:
            split: how many of `all_layers()` each stage has.
            edges: of the graph of stages; default: a chain.

        Raises:
            InputError: the faults of `check`.
        """
        specs = self._required(graph).specs
        read = values_read(self.all_layers(), self.keeps)
        over = values_over_edges(read, split, chain(len(split)) if edges is None else edges)
        return {edge: tuple(specs[value] for value in values) for edge, values in over.items()}

    def cut_specs(self, graph: Graph) -> dict[int, TensorSpec]:
        """Shape and type of the cut of every layer that aggregates, by global index.

        Raises:
            InputError: the faults of `check`.
        """
        cuts = {i: passage.cut for i, passage in self._required(graph).passages.items()}
        return {
            i: TensorSpec("cut", tuple(cut.shape[1:]), cut.dtype, False)
            for i, cut in cuts.items()
            if cut is not None
        }

    def forward(self, graph: Graph, seed: int = 0, step: int = 0) -> Tensor:
        """Logits `[N, C]` of the whole graph, with autograd. `seed` and `step` key dropout (in training
        mode).

        Raises:
            InputError: the faults of `check`, or a graph without features.
        """
        self._require(graph)
        h: Tensor | SparseRows | None = graph.x
        whole, keeps = WholeGraph(graph, self._dtype()), self.keeps
        carries: Carries = {FEATURES: cast(Tensor, h)}
        for i, layer in enumerate(self.all_layers()):
            rows = Rows(graph.node_ids, seed, step, i, self.training)
            h, written = apply_layer(layer, h, carries, rows, whole)
            carries.update(written)
            if i in keeps:
                carries[keeps[i]] = h
        return cast(Tensor, h)

    def _trace(self, graph: Graph) -> Trace:
        tiny = _like(_signature(graph)).to_dtype(self._dtype())
        return trace(self._titles(), self.all_layers(), self.keeps, tiny)

    def _required(self, graph: Graph) -> Trace:
        """The trace of a model without faults."""
        if next((p.device.type for p in self.parameters()), "cpu") != "cpu":
            return copy.deepcopy(self).cpu()._required(graph)  # the tiny graph is on the CPU
        self._require(graph)
        return self._trace(graph)

    def _titles(self) -> list[str]:
        """What faults call the layers."""
        pairs = zip(self.layer_names(), self.all_layers(), strict=True)
        plain = ("encoder", "decoder")
        return [
            name if name in plain or isinstance(layer, Join) else f"{name} ({_kind(layer)})"
            for name, layer in pairs
        ]

    def _require(self, graph: Graph) -> None:
        if graph.x is None:
            raise InputError(graph.name, ["no features x; a model reads them, so give the graph some"])
        faults = self.check(graph)
        if faults:
            raise InputError("model", faults)

    def _dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.parameters()), torch.get_default_dtype())


def _kind(layer: nn.Module) -> str:
    inner = getattr(layer, "foreign", None)
    return type(layer if inner is None else inner).__name__


def _signature(graph: Graph) -> _Signature:
    """What of a graph decides whether a model can run on it."""
    edge_features = 0 if graph.edge_attr is None else graph.edge_attr.shape[1]
    loops = bool((graph.indices == graph.destinations).any())
    sparse = isinstance(graph.x, SparseRows)
    return graph.num_features, sparse, graph.edge_weight is not None, edge_features, loops


def _like(signature: _Signature) -> Graph:
    num_features, sparse, weighted, edge_features, loops = signature
    return tiny_graph(
        num_features, sparse=sparse, edge_weight=weighted, edge_features=edge_features, self_loops=loops
    )
