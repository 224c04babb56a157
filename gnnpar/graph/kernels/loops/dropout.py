"""Elementwise passes over rows: mask, activation and row scale at once.

Matrices come flat with their row strides, so that a view of rows and a whole matrix are one type to numba.
"""

from __future__ import annotations

from typing import Any

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.hash import entry_hash, row_words

__all__ = ["drop_rows", "edge_mask_rows", "relu_drop_backward_rows", "relu_drop_rows", "scale_rows"]


@jit
def drop_rows(
    first: Any, last: Any, x: Any, x_stride: Any, ids: Any, words: Any, low: Any, factor: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = x · factor where kept, else 0. `words` = (k0, k1), `low` = threshold."""
    for row in range(first, last):
        r0, r1 = row_words(ids[row], words[0], words[1])
        source = x[row * x_stride : row * x_stride + width]
        target = out[row * out_stride : row * out_stride + width]
        for column in range(width):
            kept = entry_hash(r0, r1, column) >= low
            target[column] = source[column] * factor if kept else 0


@jit
def relu_drop_rows(
    first: Any, last: Any, x: Any, x_stride: Any, ids: Any, words: Any, low: Any, factor: Any, scale: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = scale[row] · x · factor where kept and positive, else 0 (NaN stays NaN). Empty scale: 1."""
    for row in range(first, last):
        weight = factor * scale[row] if scale.size > 0 else factor
        source = x[row * x_stride : row * x_stride + width]
        target = out[row * out_stride : row * out_stride + width]
        if low == 0:
            for column in range(width):
                value = source[column]
                target[column] = 0 if value <= 0 else value * weight
        else:
            r0, r1 = row_words(ids[row], words[0], words[1])
            for column in range(width):
                value = source[column]
                dropped = (entry_hash(r0, r1, column) < low) | (value <= 0)
                target[column] = 0 if dropped else value * weight


@jit
def relu_drop_backward_rows(
    first: Any, last: Any, grad: Any, grad_stride: Any, y: Any, y_stride: Any, factor: Any, scale: Any,
    out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    """out = scale[row] · grad · factor where the result y of `relu_drop_rows` is positive, else 0."""
    for row in range(first, last):
        weight = factor * scale[row] if scale.size > 0 else factor
        source = grad[row * grad_stride : row * grad_stride + width]
        result = y[row * y_stride : row * y_stride + width]
        target = out[row * out_stride : row * out_stride + width]
        for column in range(width):
            target[column] = source[column] * weight if result[column] > 0 else 0


@jit
def scale_rows(
    first: Any, last: Any, x: Any, x_stride: Any, scale: Any, out: Any, out_stride: Any, width: Any
) -> None:
    """out = scale[row] · x."""
    for row in range(first, last):
        weight = scale[row]
        source = x[row * x_stride : row * x_stride + width]
        target = out[row * out_stride : row * out_stride + width]
        for column in range(width):
            target[column] = source[column] * weight


@jit
def edge_mask_rows(
    first: Any, last: Any, dst: Any, src: Any, words: Any, low: Any, out: Any, heads: Any
) -> None:
    """Which (edge, head) entries are kept."""
    for edge in range(first, last):
        r0, r1 = row_words(dst[edge], words[0], words[1])
        r0, r1 = row_words(src[edge], r0, r1)
        for head in range(heads):
            out[edge * heads + head] = entry_hash(r0, r1, head) >= low
