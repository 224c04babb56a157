"""`LayerStack`: a model as a list of layers, which is what pipelines cut and chunks run through."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from gnnpar.errors import Faults, InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.model.adapters import Foreign, adapt, settle
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.locality import locality_faults
from gnnpar.model.rows import Rows
from gnnpar.model.tiny import tiny_graph
from gnnpar.model.trace import TensorSpec, Trace, trace
from gnnpar.model.whole import WholeGraph, apply_layer

__all__ = ["LayerStack"]

_Signature = tuple[int, bool, bool, int, bool]


class LayerStack(nn.Module):
    """Encoder, graph layers and decoder: `[N, F]` → `[N, C]`.

    Args:
        encoder: row-wise: a `Layer` without operator, or a plain module such as `nn.Linear`.
        layers: own layers, PyG or DGL convolutions (wrapped by adapters), row-wise modules such as `nn.ReLU`.
        decoder: row-wise.

    Raises:
        InputError: modules that cannot be used, all of them, each with the reason.

    Example:
        >>> model = LayerStack(
        ...     encoder=nn.Linear(500, 64),
        ...     layers=[GCNConv(64, 64), nn.ReLU(), GCNII(64, layer=1)],
        ...     decoder=nn.Linear(64, 3),
        ... )

    Parameters are named by global position: `encoder.…`, `layers.0.…`, `decoder.…`. The global layer index,
    which keys dropout, is 0 for the encoder, 1…L for the layers and L + 1 for the decoder.
    """

    def __init__(self, encoder: nn.Module, layers: Iterable[nn.Module], decoder: nn.Module) -> None:
        super().__init__()
        modules = list(layers)
        faults = Faults("model")
        if not modules:
            faults.add("layers: empty; give at least one graph layer")
        parts: list[Layer] = []
        for name, module in zip(_names(modules), [encoder, *modules, decoder], strict=True):
            try:
                parts.append(adapt(module))
            except InputError as error:
                faults.extend(f"{name}: {fault}" for fault in error.faults)
                continue
            if name in ("encoder", "decoder") and parts[-1].operator is not None:
                faults.add(f"{name}: {type(module).__name__} reads neighbours; put it into layers")
        faults.raise_if_any()
        self.encoder = parts[0]
        self.layers = nn.ModuleList(parts[1:-1])
        self.decoder = parts[-1]
        self._checked: dict[_Signature, tuple[list[str], int | None]] = {}

    def all_layers(self) -> list[Layer]:
        """Encoder, layers, decoder; the position is the global layer index."""
        return [self.encoder, *(cast(Layer, layer) for layer in self.layers), self.decoder]

    @property
    def chunk_dependent(self) -> bool:
        """True where a layer's result for a row depends on which rows share its micro-batch."""
        return any(layer.chunk_dependent for layer in self.all_layers())

    @property
    def reads_h0(self) -> bool:
        """Whether the encoder's output travels along as the carry `h0`."""
        return any("h0" in layer.reads for layer in self.all_layers())

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
            names = _names(self.layers)
            layers = self.all_layers()
            tiny = _like(signature).to_dtype(self._dtype())
            found = trace(names, layers, tiny)
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

    def payload_specs(self, graph: Graph) -> list[tuple[TensorSpec, ...]]:
        """For every cut position i in 0…L, what crosses a stage boundary after global layer i: `h`, then
        carries.

        Raises:
            InputError: the faults of `check`.
        """
        return self._trace(graph).payloads

    def cut_specs(self, graph: Graph) -> dict[int, TensorSpec]:
        """Shape and type of the cut of every layer that aggregates, by global index.

        Raises:
            InputError: the faults of `check`.
        """
        cuts = {i: passage.cut for i, passage in self._trace(graph).passages.items()}
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
        whole = WholeGraph(graph, self._dtype())
        carries: Carries = {}
        for i, layer in enumerate(self.all_layers()):
            rows = Rows(graph.node_ids, seed, step, i, self.training)
            h, written = apply_layer(layer, h, carries, rows, whole)
            carries.update(written)
            if i == 0 and self.reads_h0:
                carries["h0"] = h
        return cast(Tensor, h)

    def _trace(self, graph: Graph) -> Trace:
        if next((p.device.type for p in self.parameters()), "cpu") != "cpu":
            return copy.deepcopy(self).cpu()._trace(graph)  # the tiny graph is on the CPU
        self._require(graph)
        tiny = _like(_signature(graph)).to_dtype(self._dtype())
        return trace(_names(self.layers), self.all_layers(), tiny)

    def _require(self, graph: Graph) -> None:
        if graph.x is None:
            raise InputError(graph.name, ["no features x; a model reads them, so give the graph some"])
        faults = self.check(graph)
        if faults:
            raise InputError("model", faults)

    def _dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.parameters()), torch.get_default_dtype())


def _names(layers: Iterable[nn.Module]) -> list[str]:
    return ["encoder", *(f"layers.{i} ({_kind(layer)})" for i, layer in enumerate(layers)), "decoder"]


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
