"""Dropout and transposed products of sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.hash import entry_hash, row_words

__all__ = ["drop_nonzeros", "scatter_columns"]


@jit
def drop_nonzeros(
    indptr: Any, indices: Any, values: Any, ids: Any, words: Any, low: Any, factor: Any,
    kept_indptr: Any, kept_indices: Any, kept_values: Any,
) -> Any:  # fmt: skip
    count = 0
    for row in range(ids.size):
        kept_indptr[row] = count
        r0, r1 = row_words(ids[row], words[0], words[1])
        for edge in range(indptr[row], indptr[row + 1]):
            # Written whether kept or not: a branch that is taken half of the time costs more.
            kept_indices[count] = indices[edge]
            kept_values[count] = values[edge] * factor
            count += entry_hash(r0, r1, np.uint32(indices[edge])) >= low
    kept_indptr[ids.size] = count
    return count


@jit
def scatter_columns(
    first: Any,
    last: Any,
    indptr: Any,
    indices: Any,
    values: Any,
    grad: Any,
    grad_stride: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """out[indices[e], first:last] += values[e] · grad[row of e, first:last], in the order of edges."""
    width = last - first
    for row in range(indptr.size - 1):
        source = grad[row * grad_stride + first :][:width]
        for edge in range(indptr[row], indptr[row + 1]):
            target = out[indices[edge] * out_stride + first :][:width]
            factor = values[edge]
            for column in range(width):
                target[column] += factor * source[column]
