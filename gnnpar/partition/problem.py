"""`Problem`: what every method is given: integer weights, and a simple undirected structure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gnnpar.graph.graph import Graph

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["IntArray", "Problem", "cost_fingerprint", "degree_cost", "undirected"]

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]

MEAN_WEIGHT = 64
"""Costs are rounded to integers with this mean: 1% of the mean cost is still seen, and sums stay small."""

MAX_TOTAL_WEIGHT = 2**30
"""Some partitioners sum weights in 32 bits."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Cut the graph into `num_parts` parts of about equal cost with few edges between them.

    Attributes:
        graph: as the user gave it, perhaps directed; or the structure of some vertices of one.
        num_parts: C, at least 2 and less than N.
        seed: not negative.
        cost: `[N]` float64 vertex costs, or None where all are equal.
        timeout_s: deadline of a child process.
    """

    graph: Graph | csr_matrix
    num_parts: int
    seed: int
    cost: FloatArray | None
    timeout_s: float

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes if isinstance(self.graph, Graph) else int(self.graph.shape[0])

    @cached_property
    def structure(self) -> csr_matrix:
        """See `undirected`."""
        return undirected(self.graph) if isinstance(self.graph, Graph) else self.graph

    def among(self, vertices: IntArray, num_parts: int) -> Problem:
        """The same of some vertices (their edges among themselves), `[n]` ascending."""
        cost = None if self.cost is None else self.cost[vertices]
        structure = self.structure[vertices][:, vertices]
        return Problem(structure, num_parts, self.seed, cost, self.timeout_s)

    def into(self, num_parts: int) -> Problem:
        """The same vertices in another number of parts."""
        return replace(self, num_parts=num_parts)

    @cached_property
    def weight(self) -> npt.NDArray[np.int64]:
        """`[N]` int64, at least 1: the costs, scaled and rounded."""
        if self.cost is None:
            return np.ones(self.num_nodes, dtype=np.int64)
        mean = self.cost.mean()
        scale = min(MEAN_WEIGHT, MAX_TOTAL_WEIGHT / self.num_nodes) / mean
        return np.asarray(np.maximum(np.rint(self.cost * scale), 1), dtype=np.int64)


def undirected(graph: Graph) -> csr_matrix:
    """`[N, N]` CSR pattern (ones) with every edge in both directions once and no self loop.

    What partitioners demand, and crash without. Cost: O(E), no sort.
    """
    from scipy.sparse import csr_matrix

    n = graph.num_nodes
    rows, columns = graph.destinations.numpy(), graph.indices.numpy()
    keep = rows != columns
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows[keep], minlength=n), out=indptr[1:])
    # Ones are summed where an edge is stored in several copies, so int8 could wrap round to zero.
    ones = np.ones(int(indptr[-1]), dtype=np.float32)
    pattern = csr_matrix((ones, columns[keep], indptr), shape=(n, n))
    both = (pattern + pattern.T).tocsr()
    both.sum_duplicates()
    both.data[:] = 1
    return both


def degree_cost(graph: Graph, per_vertex: float, per_edge: float) -> FloatArray:
    """`[N]` cost of computing each vertex: `per_vertex + per_edge · in-degree` (their ratio counts).

    Dense algebra and elementwise passes cost by vertex, aggregation by edge, so that parts equal in vertices
    alone can differ twofold in time on a power-law graph.
    """
    return np.asarray(per_vertex + per_edge * graph.in_degree.numpy(), dtype=np.float64)


def cost_fingerprint(cost: FloatArray | None) -> str:
    """16 hex digits, or "unit"."""
    return "unit" if cost is None else hashlib.blake2b(cost.tobytes(), digest_size=8).hexdigest()
