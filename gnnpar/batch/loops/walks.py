"""Random walks, and how often they meet vertices and edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.batch.loops.draws import below, compiled, row_words

__all__ = ["walks", "count_visits"]


@compiled
def _walk(indptr: Any, indices: Any, r0: Any, r1: Any, path: Any) -> None:
    """From `path[0]` against the edges, one uniformly drawn in-neighbour a step; it stays where there is
    none."""
    for step in range(1, path.size):
        vertex = path[step - 1]
        first = indptr[vertex]
        degree = indptr[vertex + 1] - first
        path[step] = indices[first + below(r0, r1, step, degree)] if degree > 0 else vertex


@compiled
def walks(indptr: Any, indices: Any, draws: Any, k0: Any, k1: Any, paths: Any) -> None:
    """`paths[i, 1:]`: a walk from `paths[i, 0]`, a function of the number `draws[i]`."""
    for i in range(draws.size):
        r0, r1 = row_words(int(draws[i]), k0, k1)
        _walk(indptr, indices, r0, r1, paths[i])


@compiled
def count_visits(
    indptr: Any, indices: Any, rounds: Any, length: Any, k0: Any, k1: Any, visits: Any, pairs: Any
) -> None:
    """Of `rounds` walks from every vertex: how many visit a vertex `[N]`, and both ends of an edge `[E]`."""
    path = np.empty(length + 1, np.int64)
    for draw in range(visits.size * rounds):
        path[0] = draw // rounds
        r0, r1 = row_words(draw, k0, k1)
        _walk(indptr, indices, r0, r1, path)
        visited = np.unique(path)
        for vertex in visited:
            visits[vertex] += 1
            first, last = indptr[vertex], indptr[vertex + 1]
            row = indices[first:last]
            for source in visited:
                edge = np.searchsorted(row, source)
                while edge < last - first and row[edge] == source:
                    pairs[first + edge] += 1
                    edge += 1
