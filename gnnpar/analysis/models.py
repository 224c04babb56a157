"""A model, or a configured one, as layers with costs in named widths."""

from __future__ import annotations

import copy
from collections import Counter as Multiset
from dataclasses import replace

from gnnpar.analysis.expr import Expr, symbol
from gnnpar.analysis.layers import LayerCost, cost_layers
from gnnpar.config import ModelConfig
from gnnpar.graph import Graph, SparseRows
from gnnpar.interop.dgl_torch import kernels_as_torch
from gnnpar.model import Model, build_model
from gnnpar.model.adapters import Foreign

__all__ = ["cost_custom", "cost_model", "sizes_of"]


def sizes_of(graph: Graph) -> dict[str, float]:
    """Values of the symbols that the graph gives.

    n vertices, m edges, d the most neighbours of a vertex (in or out), itself counted, F features, z of them
    stored where they are sparse, C classes, t labelled training vertices, e features of an edge.
    """
    most = max(int(graph.in_degree.max()), int(graph.out_degree.max())) if graph.num_edges else 0
    labelled = graph.train_mask.clone()
    if not graph.multi_label:
        labelled &= graph.y >= 0
    stored = (
        graph.x.indices.numel() if isinstance(graph.x, SparseRows) else graph.num_nodes * graph.num_features
    )
    return {
        "n": graph.num_nodes,
        "m": graph.num_edges,
        "d": most + 1,
        "F": graph.num_features,
        "z": stored,
        "C": graph.num_classes,
        "t": int(labelled.sum()),
        "e": 0 if graph.edge_attr is None else graph.edge_attr.shape[1],
    }


def twin_of(config: ModelConfig, graph: Graph) -> tuple[Model, dict[int, Expr], dict[str, float]]:
    """A configured model at widths that no two symbols share, for at most three graph layers.

    Returns the model, the names of its widths, and the values that k, T and L have in the configuration.
    """
    k, heads = symbol("k"), symbol("T")
    count = 3 if config.heads > 1 and config.name == "gat" else 1
    head = 7 if count > 1 else 19
    small = replace(
        config,
        hidden=count * head,
        heads=count if config.name == "gat" else 1,
        num_layers=min(config.num_layers, 3),
    )
    model = build_model(small, 13, 5)
    widths = {13: symbol("F"), 5: symbol("C"), count * head: k, 2 * count * head: k * 2}
    if count > 1:
        widths |= {head: k * heads**-1, count: heads}
    values: dict[str, float] = {"k": config.hidden, "L": config.num_layers}
    if count > 1:
        values["T"] = config.heads
    return model, widths, values


def cost_model(config: ModelConfig, graph: Graph) -> tuple[list[LayerCost], dict[str, float]]:
    """Costs of every layer of a configured model on `graph`, and the values of all symbols in them."""
    model, widths, values = twin_of(config, graph)
    values |= sizes_of(graph)
    few = cost_layers(model, graph, widths, values)
    encoder, *inner, decoder = few
    middle = inner[1] if len(inner) == 3 else None
    names = [f"layers.{i}" for i in range(config.num_layers)]
    chosen = inner if middle is None else [inner[0], *[middle] * (config.num_layers - 2), inner[-1]]
    layers = [replace(one, name=name) for one, name in zip(chosen, names, strict=True)]
    return [encoder, *layers, decoder], values


def cost_custom(model: Model, graph: Graph) -> tuple[list[LayerCost], dict[str, float]]:
    """Costs of every layer of any model, at its own widths. Equal widths share a symbol: F, C, k, k2, …"""
    values = sizes_of(graph)
    specs = model.cut_specs(graph)  # raises the faults of the model
    counted = Multiset(spec.tail[-1] for spec in specs.values() if spec.tail)
    widths: dict[int, Expr] = {}
    for number, (width, _) in enumerate(counted.most_common()):
        name = "k" if number == 0 else f"k{number + 1}"
        widths[width], values[name] = symbol(name), width
    for name in ("F", "C"):
        widths.setdefault(int(values[name]), symbol(name))
    values["L"] = model.num_layers
    # One and two are columns of scores and halves of pairs more often than widths.
    widths = {width: name for width, name in widths.items() if width > 2}
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, Foreign):
            module.strategy = None  # a whole graph needs none
    with kernels_as_torch():  # DGL's are not seen otherwise
        return cost_layers(model, graph, widths, values), values
