"""The graph on which models and foreign layers are tried: 12 vertices, directed, irregular."""

from __future__ import annotations

import torch

from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph

__all__ = ["NUM_VERTICES", "tiny_graph"]

NUM_VERTICES = 12
_FIXED = (1, 5)
"""Every vertex v hears v + 1 and v + 5 (modulo 12), some hear more; vertex 11 is heard by none."""
_MORE = ((4, 2), (0, 6), (0, 9))
"""They make the numbers of edges odd: modules that count edges off in groups give themselves away."""


def tiny_graph(
    num_features: int,
    *,
    dtype: torch.dtype = torch.float64,
    sparse: bool = False,
    edge_weight: bool = False,
    edge_features: int = 0,
    self_loops: bool = False,
) -> Graph:
    """A directed graph in which in-degree, out-degree, one hop and two hops all differ. Always the same
    values.

    Args:
        edge_weight, edge_features, self_loops: whether there are weights, how many features an edge has
            (uniform in [0, 1)), whether some vertices have a stored loop: as the graph that it stands for.
    """
    n = NUM_VERTICES
    edges = [((v + k) % n, v) for v in range(n) for k in _FIXED]
    edges += [((v + 7) % n, v) for v in range(0, n, 3)] + [((v + 2) % n, v) for v in range(1, n, 4)]
    edges = [(u, v) for u, v in edges if u != n - 1] + list(_MORE)
    if self_loops:
        edges += [(v, v) for v in range(0, n, 4)]
    draw = torch.Generator().manual_seed(12)
    num_edges = len(edges)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=dtype, generator=draw)

    dense = uniform(n, num_features) - 0.5
    x: torch.Tensor | SparseRows = dense
    if sparse:
        x = SparseRows(
            torch.arange(n + 1) * num_features,
            torch.arange(num_features, dtype=torch.int32).repeat(n),
            dense.reshape(-1),
            num_features,
        )
    return Graph.from_edge_index(
        torch.tensor(edges).t(),
        num_nodes=n,
        x=x,
        edge_weight=uniform(num_edges) + 0.5 if edge_weight else None,
        edge_attr=uniform(num_edges, edge_features) if edge_features else None,
        name="the 12-vertex probe graph",
    )
