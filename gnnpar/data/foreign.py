"""Graphs from objects of other libraries: PyG `Data`, `DGLGraph`. Neither library is imported here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.data.splits import MASKS, choose_split
from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph

__all__ = ["as_graph", "from_dgl", "from_pyg"]


def as_graph(given: Any) -> Graph:
    """The graph itself, or one from a PyG `Data` or a `DGLGraph`.

    Raises:
        InputError: anything else.
    """
    if isinstance(given, Graph):
        return given
    homes = {(base.__module__.partition(".")[0], base.__name__) for base in type(given).__mro__}
    if ("torch_geometric", "Data") in homes:
        return from_pyg(given)
    if ("dgl", "DGLGraph") in homes:
        return from_dgl(given)
    raise InputError(
        "graph",
        [
            f"{type(given).__name__} is none; give a gnnpar Graph, a homogeneous PyG Data (of a dataset: "
            "dataset[0]) or a homogeneous DGLGraph"
        ],
    )


def from_pyg(data: Any, *, split: int = 0, name: str = "pyg", coalesce: bool = True) -> Graph:
    """A graph from a homogeneous `torch_geometric.data.Data` (or `dataset[0]`).

    Reads `edge_index` or `adj_t`, `x`, `y`, masks (`[N]` or `[N, S]`), `edge_weight`, `edge_attr`. Without
    masks the split is a seeded 60/20/20 one.

    Raises:
        InputError: a heterogeneous graph, or edges out of range.
    """
    if not hasattr(data, "num_nodes") or hasattr(data, "node_types"):
        raise InputError(
            f"graph {name}", [f"{type(data).__name__} is not a homogeneous PyG Data; convert it first"]
        )
    edge_index, weight = getattr(data, "edge_index", None), getattr(data, "edge_weight", None)
    if edge_index is None and getattr(data, "adj_t", None) is not None:
        row, col, weight = data.adj_t.coo()
        edge_index = torch.stack([col, row])
    if edge_index is None:
        raise InputError(f"graph {name}", ["has neither edge_index nor adj_t"])
    attr = getattr(data, "edge_attr", None)
    return _graph(
        name,
        split,
        edge_index,
        int(data.num_nodes),
        getattr(data, "x", None),
        getattr(data, "y", None),
        {key: getattr(data, key, None) for key in MASKS},
        weight,
        attr,
        coalesce,
    )


def from_dgl(
    graph: Any,
    *,
    feature: str = "feat",
    label: str = "label",
    split: int = 0,
    name: str = "dgl",
    coalesce: bool = True,
) -> Graph:
    """A graph from a homogeneous `DGLGraph`; `edata["weight"]` (or `"w"`) and `edata["feat"]` come along.

    Args:
        feature, label: keys in `ndata`.

    Raises:
        InputError: a heterogeneous graph, or edges out of range.
    """
    if not getattr(graph, "is_homogeneous", False):
        raise InputError(f"graph {name}", [f"{type(graph).__name__} is not a homogeneous DGLGraph"])
    src, dst = graph.edges(order="eid")
    nodes, edges = graph.ndata, graph.edata
    return _graph(
        name,
        split,
        torch.stack([src, dst]),
        int(graph.num_nodes()),
        nodes.get(feature),
        nodes.get(label),
        {key: nodes.get(key) for key in MASKS},
        edges.get("weight", edges.get("w")),
        edges.get("feat"),
        coalesce,
    )


def _graph(
    name: str,
    split: int,
    edge_index: Tensor,
    num_nodes: int,
    x: Any,
    y: Tensor | None,
    masks: dict[str, Tensor | None],
    weight: Tensor | None,
    attr: Tensor | None,
    coalesce: bool,
) -> Graph:
    y = torch.full((num_nodes,), -1) if y is None else _labels(y.detach().cpu())
    found = {key: mask.detach().cpu().bool() for key, mask in masks.items() if mask is not None}
    if found:
        found = {key: found.get(key, torch.zeros_like(found[next(iter(found))])) for key in MASKS}
        # PyG keeps several splits as columns.
        found = {key: mask[None] if mask.dim() == 1 else mask.T for key, mask in found.items()}
    if attr is not None:
        attr = attr.detach().cpu().float()
        if attr.dim() == 1:
            attr, weight = None, attr if weight is None else weight
    return Graph.from_edge_index(
        edge_index.detach().cpu(),
        num_nodes=num_nodes,
        x=_features(x),
        y=y,
        edge_weight=None if weight is None else weight.detach().cpu().float().reshape(-1),
        edge_attr=attr,
        coalesce=coalesce,
        name=name,
    ).replace(**choose_split(found, y, split, name))


def _labels(y: Tensor) -> Tensor:
    if y.dim() == 2 and y.shape[1] > 1:
        return y.float()
    y = y.reshape(-1)
    return torch.where(y.isnan(), -1, y).long() if y.dtype.is_floating_point else y.long()


def _features(x: Any) -> Tensor | SparseRows | None:
    if x is None:
        return None
    if not isinstance(x, Tensor):  # torch_sparse's SparseTensor, which PyG reads as a duck too
        rowptr, col, value = x.csr()
        value = torch.ones(col.numel()) if value is None else value
        return SparseRows(rowptr.long(), col.int(), value.float(), int(x.size(1)))
    x = x.detach().cpu()
    if x.layout == torch.strided:
        dense: Tensor = x if x.dtype.is_floating_point else x.float()
        return dense
    if x.layout == torch.sparse_csr:
        return SparseRows(x.crow_indices().long(), x.col_indices().int(), x.values().float(), x.shape[1])
    x = x.coalesce()
    row, col = x.indices()
    indptr = torch.zeros(x.shape[0] + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(row, minlength=x.shape[0]), 0, out=indptr[1:])
    return SparseRows(indptr, col.int(), x.values().float(), x.shape[1])
