"""Elementwise passes over rows: mask, activation and row scale at once.

Matrices come as address and row stride; `factor` has the type of the numbers. Address 0: not given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.hash import entry_hash, row_words
from gnnpar.graph.kernels.loops.memory import size_of, span

__all__ = [
    "drop_rows",
    "edge_mask_rows",
    "relu_drop_backward_rows",
    "relu_drop_rows",
    "scale_rows",
    "split_rows",
]


@jit
def _row(address: Any, stride: Any, row: Any, width: Any, like: Any) -> Any:
    return span(address + row * stride * size_of(like), width, like)


@jit
def drop_rows(
    first: Any, last: Any, x: Any, x_stride: Any, ids: Any, k0: Any, k1: Any, low: Any, factor: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = x · factor where kept, else 0. k0, k1: words of the key; low: the threshold."""
    vertices = span(ids, last, np.int64(0))
    zero, least = factor - factor, np.uint32(low)
    for row in range(first, last):
        r0, r1 = row_words(vertices[row], np.uint32(k0), np.uint32(k1))
        source = _row(x, x_stride, row, width, factor)
        target = _row(out, out_stride, row, width, factor)
        for column in range(width):
            target[column] = source[column] * factor if entry_hash(r0, r1, column) >= least else zero


@jit
def relu_drop_rows(
    first: Any, last: Any, x: Any, x_stride: Any, ids: Any, k0: Any, k1: Any, low: Any, factor: Any,
    scale: Any, out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = scale[row] · x · factor where kept and positive, else 0 (a NaN that is kept stays NaN)."""
    vertices, scales = span(ids, last, np.int64(0)), span(scale, last, factor)
    zero, least = factor - factor, np.uint32(low)
    for row in range(first, last):
        by = factor * scales[row] if scale != 0 else factor
        source = _row(x, x_stride, row, width, factor)
        target = _row(out, out_stride, row, width, factor)
        if low == 0:
            for column in range(width):
                value = source[column]
                target[column] = zero if value <= zero else value * by
        else:
            r0, r1 = row_words(vertices[row], np.uint32(k0), np.uint32(k1))
            for column in range(width):
                value = source[column]
                dropped = (entry_hash(r0, r1, column) < least) | (value <= zero)
                target[column] = zero if dropped else value * by


@jit
def relu_drop_backward_rows(
    first: Any, last: Any, grad: Any, grad_stride: Any, y: Any, y_stride: Any, factor: Any, scale: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = scale[row] · grad · factor where the result y of `relu_drop_rows` is positive, else 0."""
    scales = span(scale, last, factor)
    zero = factor - factor
    for row in range(first, last):
        by = factor * scales[row] if scale != 0 else factor
        source = _row(grad, grad_stride, row, width, factor)
        result = _row(y, y_stride, row, width, factor)
        target = _row(out, out_stride, row, width, factor)
        for column in range(width):
            flow = source[column] * by
            target[column] = flow if result[column] > zero else zero


@jit
def scale_rows(
    first: Any, last: Any, x: Any, x_stride: Any, scale: Any, like: Any, out: Any, out_stride: Any, width: Any
) -> None:
    """out = scale[row] · x."""
    scales = span(scale, last, like)
    for row in range(first, last):
        by = scales[row]
        source = _row(x, x_stride, row, width, like)
        target = _row(out, out_stride, row, width, like)
        for column in range(width):
            target[column] = source[column] * by


@jit
def split_rows(
    first: Any, last: Any, x: Any, x_stride: Any, scale: Any, a: Any, b: Any, total: Any, total_stride: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = a · scale[row] · x and total += b · x."""
    scales = span(scale, last, a)
    for row in range(first, last):
        by = a * scales[row] if scale != 0 else a
        source = _row(x, x_stride, row, width, a)
        target = _row(out, out_stride, row, width, a)
        kept = _row(total, total_stride, row, width, a)
        for column in range(width):
            value = source[column]
            target[column] = by * value
            kept[column] += b * value


@jit
def edge_mask_rows(
    first: Any, last: Any, dst: Any, src: Any, k0: Any, k1: Any, low: Any, out: Any, heads: Any
) -> None:
    """Which (edge, head) entries are kept, one byte each."""
    destinations, sources = span(dst, last, np.int64(0)), span(src, last, np.int64(0))
    kept, least = span(out, last * heads, np.uint8(0)), np.uint32(low)
    for edge in range(first, last):
        r0, r1 = row_words(destinations[edge], np.uint32(k0), np.uint32(k1))
        r0, r1 = row_words(sources[edge], r0, r1)
        for head in range(heads):
            kept[edge * heads + head] = entry_hash(r0, r1, head) >= least
