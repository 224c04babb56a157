"""Sums over the neighbours of a row. Matrices come flat with their row strides."""

from __future__ import annotations

from typing import Any

from gnnpar.graph.kernels.compile import jit

__all__ = ["pull_rows"]


@jit
def pull_rows(
    first: Any, last: Any, indptr: Any, indices: Any, weight: Any, x: Any, x_stride: Any, self_rows: Any,
    scale: Any, residual: Any, residual_stride: Any, a: Any, b: Any, out: Any, out_stride: Any, width: Any,
) -> None:  # fmt: skip
    for row in range(first, last):
        target = out[row * out_stride : row * out_stride + width]
        target[:] = 0
        if self_rows >= 0:
            at = (self_rows + row) * x_stride
            source = x[at : at + width]
            for column in range(width):
                target[column] += source[column]
        for edge in range(indptr[row], indptr[row + 1]):
            at = indices[edge] * x_stride
            source = x[at : at + width]
            factor = weight[edge] if weight.size > 0 else a * 0 + 1
            for column in range(width):
                target[column] += factor * source[column]
        factor = a * scale[row] if scale.size > 0 else a
        if residual.size > 0:
            at = row * residual_stride
            extra = residual[at : at + width]
            for column in range(width):
                target[column] = factor * target[column] + b * extra[column]
        else:
            for column in range(width):
                target[column] = factor * target[column]
