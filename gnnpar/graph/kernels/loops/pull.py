"""Sums over the neighbours of rows, and their transpose, tile by tile (`gnnpar.graph.kernels.loops.vector`).

Matrices come as address and row stride. Address 0: not given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.memory import size_of, span
from gnnpar.graph.kernels.loops.vector import LANE_BYTES, gather_tile, scatter_tile

__all__ = ["pull_rows", "scatter_columns"]

_gather_8, _gather_4, _gather_2, _gather_1 = gather_tile(8), gather_tile(4), gather_tile(2), gather_tile(1)
_gather_rest = gather_tile(1, masked=True)
_scatter_4, _scatter_1, _scatter_rest = scatter_tile(4), scatter_tile(1), scatter_tile(1, masked=True)


@jit
def pull_rows(
    first: Any, last: Any, indptr: Any, indices: Any, index: Any, weight: Any, x: Any, x_stride: Any,
    self_rows: Any, scale: Any, gate: Any, gate_stride: Any, residual: Any, residual_stride: Any,
    a: Any, b: Any, out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """`gnnpar.graph.kernels.pull` for the rows `first:last`. No `self_rows`: negative; no weight: None."""
    size = size_of(a)
    lanes = LANE_BYTES // size
    ends = span(indptr, last + 1, np.int64(0))
    scales = span(scale, last, a)
    for row in range(first, last):
        begin, end = ends[row], ends[row + 1]
        me = self_rows + row if self_rows >= 0 else self_rows
        factor = a * scales[row] if scale != 0 else a
        target, source = out + row * out_stride * size, x
        barrier = gate + row * gate_stride * size if gate != 0 else gate
        extra = residual + row * residual_stride * size if residual != 0 else residual
        edges = (x_stride, indices, index, ends[last], begin, end, weight, me, factor, b)
        left = width
        while left > 0:
            if left >= 8 * lanes:
                done = 8 * lanes
                _gather_8((left, target, source, barrier, extra), edges)
            elif left >= 4 * lanes:
                done = 4 * lanes
                _gather_4((left, target, source, barrier, extra), edges)
            elif left >= 2 * lanes:
                done = 2 * lanes
                _gather_2((left, target, source, barrier, extra), edges)
            elif left >= lanes:
                done = lanes
                _gather_1((left, target, source, barrier, extra), edges)
            else:
                done = left
                _gather_rest((left, target, source, barrier, extra), edges)
            left -= done
            target += done * size
            source += done * size
            barrier += done * size if gate != 0 else 0
            extra += done * size if residual != 0 else 0


@jit
def scatter_columns(
    first: Any, last: Any, num_rows: Any, indptr: Any, indices: Any, index: Any, weight: Any,
    x: Any, x_stride: Any, like: Any, out: Any, out_stride: Any,
) -> None:  # fmt: skip
    """out[indices[e], first:last] += weight[e] · x[row of e, first:last], in the order of edges."""
    size = size_of(like)
    lanes = LANE_BYTES // size
    ends = span(indptr, num_rows + 1, np.int64(0))
    for row in range(num_rows):
        begin, end = ends[row], ends[row + 1]
        target, source = out + first * size, x + (row * x_stride + first) * size
        edges = (out_stride, indices, index, begin, end, weight, like)
        left = last - first
        while left > 0:
            if left >= 4 * lanes:
                done = 4 * lanes
                _scatter_4((left, target, source), edges)
            elif left >= lanes:
                done = lanes
                _scatter_1((left, target, source), edges)
            else:
                done = left
                _scatter_rest((left, target, source), edges)
            left -= done
            target += done * size
            source += done * size
