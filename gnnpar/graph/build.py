"""How graphs are built and renumbered: edges → CSR, symmetrisation, permutation. O(E log E), no Python loop.

N vertices, E edges. An edge is the integer `destination · N + source`, so that sorting numbers sorts edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.errors import Faults
from gnnpar.graph.features import SparseRows

if TYPE_CHECKING:
    from gnnpar.graph.graph import Graph

__all__ = ["edges_to_csr", "permute", "symmetrize"]

IntArray = npt.NDArray[np.int64]


def edges_to_csr(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    num_nodes: int,
    values: tuple[Tensor | None, ...] = (),
    *,
    duplicates: Literal["keep", "sum", "mean"] = "sum",
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:
    """CSR of in-edges: `(indptr [N + 1] int64, sources [E'] int32 or int64, values in that order)`.

    Args:
        src, dst: `[E]` integers in `0..N-1` (not checked here).
        values: tensors with E rows that travel with the edges.
        duplicates: edges that occur several times are kept, or become one with values summed or averaged.

    Cost: one sort of E int64; without values it is done in place (8 bytes an edge beyond input and result).
    """
    key = np.asarray(dst).astype(np.int64)
    key *= num_nodes
    key += np.asarray(src)
    if all(value is None for value in values):
        key.sort()
        if duplicates != "keep":
            key = _distinct(key)
        return *_split(key, num_nodes), tuple(None for _ in values)
    sorted_key, order = torch.sort(torch.from_numpy(key), stable=True)
    key = sorted_key.numpy()
    moved = [None if value is None else value[order] for value in values]
    if duplicates != "keep" and key.size and bool((key[1:] == key[:-1]).any()):
        first = np.concatenate([[True], key[1:] != key[:-1]])
        group = torch.from_numpy(np.cumsum(first) - 1)
        key = key[first]
        moved = [None if value is None else _reduce(value, group, key.size, duplicates) for value in moved]
    return *_split(key, num_nodes), tuple(moved)


def symmetrize(graph: Graph) -> Graph:
    """Every edge with its reverse, each once; self loops stay single.

    Weights and edge features: a missing reverse edge gets those of its edge, and where both directions
    exist both get the mean. A symmetric graph without duplicate edges is returned as it is (idempotent).
    """
    if graph.is_symmetric and not _has_duplicates(graph):
        return graph
    n = graph.num_nodes
    src, dst = graph.indices.numpy(), graph.destinations.numpy()
    values = tuple(None if v is None else torch.cat([v, v]) for v in (graph.edge_weight, graph.edge_attr))
    indptr, indices, (weight, attr) = edges_to_csr(
        np.concatenate([src, dst]), np.concatenate([dst, src]), n, values, duplicates="mean"
    )
    return graph.replace(indptr=indptr, indices=indices, edge_weight=weight, edge_attr=attr)


def permute(graph: Graph, order: Tensor) -> Graph:
    """The graph renumbered: new vertex i is old vertex `order[i]`. Everything per vertex and edge follows.

    Rows stay ascending in the new numbering. `node_ids` keep pointing at the original vertices.

    Raises:
        InputError: `order` is not a permutation of the vertices.
    """
    n = graph.num_nodes
    order = order.to(torch.int64)
    inverse = torch.full((n,), -1, dtype=torch.int64)
    if order.shape == (n,) and bool(((order >= 0) & (order < n)).all()):
        inverse[order] = torch.arange(n)
    if n and (order.shape != (n,) or bool((inverse < 0).any())):
        faults = Faults("permute")
        faults.add(f"order must hold each of the {n} vertices exactly once, got shape {tuple(order.shape)}")
        faults.raise_if_any()
    degree = graph.in_degree[order]
    indptr = torch.zeros(n + 1, dtype=torch.int64)
    torch.cumsum(degree, 0, out=indptr[1:])
    new_dst = torch.repeat_interleave(torch.arange(n), degree)
    edge = torch.repeat_interleave(graph.indptr[:-1][order] - indptr[:-1], degree)
    edge += torch.arange(graph.num_edges)
    new_src = inverse[graph.indices[edge]]
    values = tuple(None if v is None else v[edge] for v in (graph.edge_weight, graph.edge_attr))
    indptr, indices, (weight, attr) = edges_to_csr(
        new_src.numpy(), new_dst.numpy(), n, values, duplicates="keep"
    )
    x = graph.x
    return graph.replace(
        indptr=indptr,
        indices=indices,
        x=x.select(order) if isinstance(x, SparseRows) else None if x is None else x[order],
        y=graph.y[order],
        train_mask=graph.train_mask[order],
        val_mask=graph.val_mask[order],
        test_mask=graph.test_mask[order],
        node_ids=graph.node_ids[order],
        edge_weight=weight,
        edge_attr=attr,
    )


def _has_duplicates(graph: Graph) -> bool:
    same_source = graph.indices[1:] == graph.indices[:-1]
    return bool((same_source & (graph.destinations[1:] == graph.destinations[:-1])).any())


def _distinct(key: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sorted keys without repeats; the array itself where there are none."""
    different = key[1:] != key[:-1]
    return key if bool(different.all()) else key[np.concatenate([[True], different])]


def _split(key: npt.NDArray[Any], num_nodes: int) -> tuple[Tensor, Tensor]:
    dst = key // max(num_nodes, 1)
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    counts = np.bincount(dst, minlength=num_nodes)
    torch.cumsum(torch.from_numpy(counts), 0, out=indptr[1:])
    dst *= num_nodes
    key -= dst
    small = num_nodes <= np.iinfo(np.int32).max
    return indptr, torch.from_numpy(key.astype(np.int32) if small else key)


def _reduce(value: Tensor, group: Tensor, num_groups: int, how: str) -> Tensor:
    out = torch.zeros(num_groups, *value.shape[1:], dtype=value.dtype).index_add_(0, group, value)
    if how == "mean":
        size = torch.bincount(group, minlength=num_groups).to(value.dtype)
        out /= size.view(-1, *[1] * (value.dim() - 1))
    return out
