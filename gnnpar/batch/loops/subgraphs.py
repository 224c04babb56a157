"""Edges between chosen vertices, and the vertices around one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.batch.loops.draws import compiled, distinct, grown, row_words

__all__ = ["keep_marked", "add_squares", "egos"]


@compiled
def keep_marked(indptr: Any, indices: Any, vertices: Any, mark: Any) -> Any:
    """The edges of every row whose source is marked: `(ends [R + 1], edges, marks)`."""
    capacity = 0
    for vertex in vertices:
        capacity += indptr[vertex + 1] - indptr[vertex]
    ends = np.zeros(vertices.size + 1, np.int64)
    edges, marks = np.empty(capacity + 1, np.int64), np.empty(capacity + 1, np.int64)
    at = 0
    for row in range(vertices.size):
        vertex = vertices[row]
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            place = mark[indices[edge]]
            edges[at] = edge
            marks[at] = place
            at += place >= 0
        ends[row + 1] = at
    return ends, edges[:at].copy(), marks[:at].copy()


@compiled
def add_squares(
    indptr: Any, indices: Any, vertices: Any, row_square: Any, edge_square: Any, mark: Any
) -> Any:
    """Per source of the rows: Σ over its edges to them of row_square[row] · edge_square[edge].

    `edge_square` may be empty: all ones. Returns `(sources, sums)`, in the order of first use.
    """
    capacity = 0
    for vertex in vertices:
        capacity += indptr[vertex + 1] - indptr[vertex]
    capacity = min(capacity, indptr.size - 1)
    sources, sums = np.empty(capacity + 1, np.int64), np.zeros(capacity + 1, np.float64)
    count = 0
    for row in range(vertices.size):
        vertex = vertices[row]
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            source = indices[edge]
            place = mark[source]
            if place < 0:
                place = count
                mark[source] = place
                sources[place] = source
                count += 1
            sums[place] += row_square[row] * (edge_square[edge] if edge_square.size else 1.0)
    for i in range(count):
        mark[sources[i]] = -1
    return sources[:count].copy(), sums[:count].copy()


@compiled
def egos(indptr: Any, indices: Any, roots: Any, budget: Any, k0: Any, k1: Any, mark: Any) -> Any:
    """Vertices within `k0.size` hops of every root, `budget` new ones a vertex (-1: all), and all their
    edges.

    `k0, k1`: one word of the key a hop. Returns `(starts [B + 1], vertices, ends, edges, columns)`; root i
    owns the vertices `starts[i]:starts[i + 1]`, itself first; columns are places in `vertices`.
    """
    starts = np.zeros(roots.size + 1, np.int64)
    vertices, ends = np.empty(64, np.int64), np.zeros(64, np.int64)
    edges, columns = np.empty(64, np.int64), np.empty(64, np.int64)
    picked = np.empty(max(budget, 1), np.int64)
    count = at = 0
    for i in range(roots.size):
        root, low = roots[i], count
        vertices = grown(vertices, count + 1)
        vertices[count] = root
        mark[root] = count
        count += 1
        for hop in range(k0.size):
            high = count
            for place in range(low, high):
                vertex = vertices[place]
                first = indptr[vertex]
                degree = indptr[vertex + 1] - first
                size = degree
                if 0 <= budget < degree:
                    size = budget
                    r0, r1 = row_words(int(root), int(k0[hop]), int(k1[hop]))
                    r0, r1 = row_words(int(vertex), r0, r1)
                    distinct(r0, r1, first, degree, size, picked, 0)
                vertices = grown(vertices, count + size)
                for pick in range(size):
                    source = indices[picked[pick] if size < degree else first + pick]
                    if mark[source] < 0:
                        vertices[count] = source
                        mark[source] = count
                        count += 1
            low = high
        starts[i + 1] = count
        ends = grown(ends, count + 1)
        for place in range(starts[i], count):
            vertex = vertices[place]
            edges = grown(edges, at + indptr[vertex + 1] - indptr[vertex])
            columns = grown(columns, edges.size)
            for edge in range(indptr[vertex], indptr[vertex + 1]):
                column = mark[indices[edge]]
                if column >= 0:
                    edges[at] = edge
                    columns[at] = column
                    at += 1
            ends[place + 1] = at
        for place in range(starts[i], count):
            mark[vertices[place]] = -1
    return starts, vertices[:count].copy(), ends[: count + 1].copy(), edges[:at].copy(), columns[:at].copy()
