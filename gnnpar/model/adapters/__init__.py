"""Foreign modules as layers: PyG and DGL convolutions, and plain row-wise modules.

A foreign convolution is cut at its input, so histories hold its input rows, and its weights also receive
gradient through them. On a part of the graph it runs in one of four ways, the first that gives what the
whole graph gives:

    bipartite  `(x_columns, x_rows)`, where the module takes such a pair
    square     all columns of the block as vertices; the halo's outputs are thrown away
    padded     square, plus one silent vertex that gives every column the degree it has in the whole graph, so
               that normalisations computed inside the module come out as on the whole graph: one weighted
               edge for a column
    counted    the same by unweighted edges, as many as are lacking, for modules that count edges

`probe` tries them on a 12-vertex directed graph in float64, and says why a module is refused. Modules draw
random numbers from torch's generator, reseeded by (seed, step, layer, micro-batch): their masks depend on
the chunking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from gnnpar.errors import Faults, InputError
from gnnpar.interop.dgl import is_dgl_conv
from gnnpar.interop.pyg import is_pyg_conv
from gnnpar.model.adapters.dgl import DGLConv
from gnnpar.model.adapters.foreign import Foreign
from gnnpar.model.adapters.probe import settle, settle_foreign
from gnnpar.model.adapters.pyg import PyGConv
from gnnpar.model.layer import Layer
from gnnpar.model.rowwise import RowWise, is_row_wise
from gnnpar.model.tiny import tiny_graph

__all__ = ["DGLConv", "Foreign", "PyGConv", "adapt", "adapt_all", "probe", "settle"]


def adapt(module: nn.Module) -> Layer:
    """`module` as a layer.

    Raises:
        InputError: it cannot be one, with the reasons.
    """
    if isinstance(module, Layer):
        return module
    if is_pyg_conv(module):
        return PyGConv(module)
    if is_dgl_conv(module):
        return DGLConv(module)
    if is_row_wise(module):
        return RowWise(module)
    name = type(module).__name__
    raise InputError(
        name,
        [
            f"{name} is neither a graph layer nor known to treat every row alone; if it does, wrap it: "
            f"gnnpar.model.RowWise({name}(...))"
        ],
    )


def adapt_all(modules: Mapping[str, nn.Module], faults: Faults) -> dict[str, Layer]:
    """Modules as layers, by name; those that cannot be are left out and added to `faults`.

    Encoder and decoder must be row-wise.
    """
    layers = {}
    for name, module in modules.items():
        kind, ends = type(module).__name__, name in ("encoder", "decoder")
        try:
            layer = adapt(module)
        except InputError as error:
            title = name if ends else f"{name} ({kind})"
            faults.extend(f"{title}: {fault}" for fault in error.faults)
            continue
        if ends and layer.operator is not None:
            faults.add(f"{name}: {kind} reads neighbours; put it into layers")
        layers[name] = layer
    return layers


def probe(
    conv: nn.Module, in_features: int | None = None, *, edge_weight: bool = False, edge_features: int = 0
) -> Foreign:
    """`conv` as a layer, tried on a 12-vertex directed graph in float64; the module is not run, a copy is.

    Results and gradients on three parts of the graph must equal those on the whole.

    Args:
        in_features: width of its input; from `conv.in_channels` where not given.
        edge_weight, edge_features: whether the graph has weights, how many features an edge has.

    Raises:
        InputError: it cannot be used, with the reason.
    """
    layer = adapt(conv)
    name = type(conv).__name__
    if not isinstance(layer, Foreign):
        raise InputError(name, [f"{name} is not a PyG or DGL convolution"])
    width = _width(conv) if in_features is None else in_features
    if width is None:
        raise InputError(name, ["does not say how wide its input is; give in_features"])
    graph = tiny_graph(
        width * (1 if layer.initial is None else 2), edge_weight=edge_weight, edge_features=edge_features
    )
    assert isinstance(graph.x, torch.Tensor)
    fault = settle_foreign(layer, graph.x, graph)
    if fault is not None:
        raise InputError(name, [fault])
    return layer


def _width(conv: nn.Module) -> int | None:
    """Input width, as the attributes of PyG's and DGL's modules give it."""
    for name in ("in_channels", "channels", "_in_feats", "_in_src_feats", "in_feats"):
        value: Any = getattr(conv, name, None)
        if isinstance(value, tuple | list):
            value = value[0]
        if isinstance(value, int) and value > 0:
            return value
    return None
