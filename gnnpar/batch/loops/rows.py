"""The edges of rows, and the columns that their sources become."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.batch.loops.draws import compiled, distinct, grown, repeated, row_words

__all__ = ["count_picks", "pick", "pick_labor", "set_marks", "relabel"]


@compiled
def count_picks(indptr: Any, vertices: Any, num_rows: Any, fanout: Any, replace: Any, ends: Any) -> Any:
    """`ends[row + 1]`: edges of the rows so far, where each has `fanout` (-1: all). Returns their sum."""
    total = 0
    ends[0] = 0
    for row in range(num_rows):
        vertex = vertices[row]
        size = indptr[vertex + 1] - indptr[vertex]
        if fanout >= 0 and (size > fanout or (replace and size > 0)):
            size = fanout
        total += size
        ends[row + 1] = total
    return total


@compiled
def pick(
    indptr: Any, indices: Any, vertices: Any, replace: Any, k0: Any, k1: Any, ends: Any, edges: Any,
    sources: Any, factor: Any,
) -> None:  # fmt: skip
    """The edges of every row, their sources, and 1 ÷ the expected number of times that each is drawn."""
    for row in range(ends.size - 1):
        vertex = vertices[row]
        first = indptr[vertex]
        degree = indptr[vertex + 1] - first
        at = ends[row]
        size = ends[row + 1] - at
        if not replace and size == degree:
            for i in range(size):
                edges[at + i] = first + i
        else:
            r0, r1 = row_words(int(vertex), k0, k1)
            if replace:
                repeated(r0, r1, first, degree, size, edges, at)
            else:
                distinct(r0, r1, first, degree, size, edges, at)
        share = degree / max(size, 1)
        for i in range(at, at + size):
            factor[i] = share
    # Apart: beside the loop that writes them, reading the edges takes four times as long.
    for i in range(edges.size):
        sources[i] = indices[edges[i]]


@compiled
def pick_labor(
    indptr: Any, indices: Any, vertices: Any, num_rows: Any, fanout: Any, k0: Any, k1: Any, like: Any
) -> Any:
    """The edges of every row whose source's hash is below 2^32 · min(1, fanout ÷ degree).

    Returns `(ends [R + 1], edges, sources, 1 ÷ the probability of each, of the type of `like`)`.
    """
    ends = np.zeros(num_rows + 1, np.int64)
    edges, sources = np.empty(64, np.int64), np.empty(64, np.int64)
    at = 0
    for row in range(num_rows):
        first, last = indptr[vertices[row]], indptr[vertices[row] + 1]
        degree = last - first
        edges = grown(edges, at + degree + 1)
        sources = grown(sources, edges.size)
        if degree <= fanout:
            for edge in range(first, last):
                edges[at] = edge
                sources[at] = indices[edge]
                at += 1
        else:
            bound = ((fanout << 32) + degree - 1) // degree
            for edge in range(first, last):
                edges[at] = edge
                sources[at] = indices[edge]
                at += np.int64(row_words(int(indices[edge]), k0, k1)[0]) < bound  # mispredicted as a branch
        ends[row + 1] = at
    factor = np.empty(at, like.dtype)
    for row in range(num_rows):
        vertex = vertices[row]
        share = max((indptr[vertex + 1] - indptr[vertex]) / fanout, 1.0)
        for i in range(ends[row], ends[row + 1]):
            factor[i] = share
    return ends, edges[:at].copy(), sources[:at].copy(), factor


@compiled
def set_marks(mark: Any, vertices: Any) -> None:
    """`mark[vertex]` = its place in `vertices`; the first one where it occurs several times."""
    for i in range(vertices.size - 1, -1, -1):
        mark[vertices[i]] = i


@compiled
def relabel(mark: Any, vertices: Any, count: Any, sources: Any) -> Any:
    """Replace every source by its column: its mark, or the next of `count` on, which becomes its mark.

    New sources are appended to `vertices`, which has room for them and one more. Returns the new count.
    Apart from the loop that finds the sources: stores to `mark` would hold up the loads that lead to them.
    """
    for i in range(sources.size):
        source = sources[i]
        column = mark[source]
        # No branch: one that is taken for every third edge would be mispredicted as often.
        is_new = column < 0
        vertices[count] = source
        column = count if is_new else column
        mark[source] = column
        sources[i] = column
        count += is_new
    return count
