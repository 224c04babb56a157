"""Dropout on the non-zeros of sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.hash import entry_hash, row_words
from gnnpar.graph.kernels.loops.memory import span

__all__ = ["drop_nonzeros"]


@jit
def drop_nonzeros(
    num_rows: Any, indptr: Any, indices: Any, index: Any, values: Any, ids: Any,
    k0: Any, k1: Any, low: Any, factor: Any, kept_indptr: Any, kept_indices: Any, kept_values: Any,
) -> Any:  # fmt: skip
    """Write the CSR of what is kept, values times `factor`; return its number of non-zeros."""
    ends, vertices = span(indptr, num_rows + 1, np.int64(0)), span(ids, num_rows, np.int64(0))
    size = ends[num_rows] - ends[0]
    columns, numbers = span(indices, ends[num_rows], index), span(values, ends[num_rows], factor)
    new_ends = span(kept_indptr, num_rows + 1, np.int64(0))
    new_columns, new_numbers = span(kept_indices, size, index), span(kept_values, size, factor)
    count, least = 0, np.uint32(low)
    for row in range(num_rows):
        new_ends[row] = count
        r0, r1 = row_words(vertices[row], np.uint32(k0), np.uint32(k1))
        for edge in range(ends[row], ends[row + 1]):
            # Written whether kept or not: a branch that goes either way half of the time costs more.
            column = columns[edge]
            new_columns[count] = column
            new_numbers[count] = numbers[edge] * factor
            count += 1 if entry_hash(r0, r1, column) >= least else 0
    new_ends[num_rows] = count
    return count
