"""Edges by the order in which their chunks run: which to keep, and which copy of a row they read.

`position[c]` is the place of chunk c in the step. An edge's row runs at `position[chunk_of[row]]` and reads a
column that runs at `position[chunk_of[column]]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.kernels.compile import has_numba, njit

__all__ = ["keep_edges", "redirect_edges"]


def redirect_edges(
    indptr: Tensor, indices: Tensor, chunk_of: Tensor, position: Tensor, fresh: int, stale: int, out: Tensor
) -> Tensor:
    """Column of every edge in a buffer that holds two copies of all rows.

    Columns that run no later than their row are read at `column + fresh`, the others at `column + stale`.

    Shapes: indptr `[N+1]`, indices and out `[E]`, chunk_of `[N]` int32, position `[C]` int32. Cost: O(E).
    """
    if out.device.type == "cpu" and has_numba():
        _redirect(*map(_array, (indptr, indices, chunk_of, position)), fresh, stale, _array(out))
        return out
    row, column = _positions(indptr, indices, chunk_of, position)
    return out.copy_(indices + torch.where(column <= row, fresh, stale))


def keep_edges(
    indptr: Tensor,
    indices: Tensor,
    chunk_of: Tensor,
    position: Tensor,
    relation: str,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The CSR of the edges whose column runs `not_after`, `not_before` or `together` with their row.

    Rows at a negative position have none. Order within a row is kept. Returns `(indptr, indices, weight)`.
    Cost: O(E).
    """
    low, high = {"not_after": (True, False), "not_before": (False, True), "together": (False, False)}[
        relation
    ]
    if indices.device.type == "cpu" and has_numba():
        kept_indptr = torch.empty_like(indptr)
        kept = torch.empty_like(indices)
        kept_weight = torch.empty_like(weight) if weight is not None else torch.empty(0)
        count = _keep(
            *map(_array, (indptr, indices, chunk_of, position)),
            low,
            high,
            _array(kept_indptr),
            _array(kept),
            _array(weight if weight is not None else torch.empty(0)),
            _array(kept_weight),
        )
        return kept_indptr, kept[:count], kept_weight[:count] if weight is not None else None
    row, column = _positions(indptr, indices, chunk_of, position)
    mask = ((column == row) | (low & (column < row)) | (high & (column > row))) & (row >= 0)
    kept_before = indptr.new_zeros(mask.numel() + 1)
    torch.cumsum(mask, 0, out=kept_before[1:])
    return kept_before[indptr], indices[mask], weight[mask] if weight is not None else None


def _positions(indptr: Tensor, indices: Tensor, chunk_of: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    of_vertex = position[chunk_of.long()]
    return torch.repeat_interleave(of_vertex, indptr.diff()), of_vertex[indices.long()]


def _array(tensor: Tensor) -> Any:
    return tensor.numpy()


@njit
def _redirect(indptr, indices, chunk_of, position, fresh, stale, out):  # type: ignore[no-untyped-def]
    for row in range(indptr.size - 1):
        here = position[chunk_of[row]]
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            out[edge] = column + (fresh if position[chunk_of[column]] <= here else stale)


@njit
def _keep(indptr, indices, chunk_of, position, low, high, kept_indptr, kept, weight, kept_weight):  # type: ignore[no-untyped-def]
    count = 0
    weighted = weight.size > 0
    for row in range(indptr.size - 1):
        kept_indptr[row] = count
        here = position[chunk_of[row]]
        if here < 0:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            there = position[chunk_of[column]]
            if there == here or (low and there < here) or (high and there > here):
                kept[count] = column
                if weighted:
                    kept_weight[count] = weight[edge]
                count += 1
    kept_indptr[indptr.size - 1] = count
    return count
