"""DGL convolutions as layers."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from gnnpar.errors import InputError
from gnnpar.interop.dgl import import_dgl
from gnnpar.model.adapters.foreign import Foreign, View

__all__ = ["DGLConv"]

_GRAPH, _FEATURES = ("graph", "g"), ("feat", "node_feat", "node_feats", "x", "nfeat", "inputs")
_EDGE_FEATURES = ("efeat", "edge_feat", "edge_feats", "efeats", "pseudo")


class DGLConv(Foreign):
    """Any DGL convolution of which `forward` takes a graph, one feature matrix and perhaps edge weights.

    Raises:
        InputError: it wants something else, such as edge types or positions.
    """

    def __init__(self, conv: nn.Module) -> None:
        parameters = inspect.signature(conv.forward).parameters
        names = list(parameters)
        known = {"feat_0", "edge_weight", *_EDGE_FEATURES}
        faults = []
        if len(names) < 2 or names[0] not in _GRAPH or names[1] not in _FEATURES:
            faults.append(f"forward({', '.join(names)}) does not take a graph and one feature matrix")
        faults += [
            f"forward wants {name!r}, which a Graph does not carry"
            for name in names[2:]
            if parameters[name].default is inspect.Parameter.empty and name not in known
        ]
        if faults:
            raise InputError(type(conv).__name__, faults)
        super().__init__(conv)
        self.takes_weight = "edge_weight" in parameters
        self.initial = "feat_0" if "feat_0" in parameters else None
        self.reads = () if self.initial is None else ("h0",)
        self._edge_attr = next((name for name in _EDGE_FEATURES if name in parameters), None)

    def call(self, x: Tensor, x_rows: Tensor, initial: Tensor | None, view: View) -> Tensor:
        dgl = import_dgl()
        edges = view.source, view.destination
        arguments: dict[str, Any] = {}
        if view.bipartite:
            graph = dgl.create_block(
                edges, num_src_nodes=view.num_vertices, num_dst_nodes=view.num_rows, device=x.device
            )
        else:
            graph = dgl.graph(edges, num_nodes=view.num_vertices, device=x.device)
        features: Any = (x, x_rows) if view.bipartite else x
        if self.initial is not None:
            arguments[self.initial] = (
                initial if initial is None or not view.bipartite else initial[: view.num_rows]
            )
        if self.takes_weight and view.edge_weight is not None:
            arguments["edge_weight"] = view.edge_weight
        if self._edge_attr is not None and view.edge_attr is not None:
            arguments[self._edge_attr] = view.edge_attr
        out = self.foreign(graph, features, **arguments)
        if not isinstance(out, Tensor):
            raise TypeError(f"returns a {type(out).__name__}, not one tensor with a row per vertex")
        # Attention heads come as a dimension of their own; a layer gives one row a vertex.
        return out.flatten(1)
