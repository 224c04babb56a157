"""The transpose of a small CSR, made anew for every mini-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnpar.graph.kernels.compile import has_numba, njit

__all__ = ["transpose"]


def transpose(indptr: Tensor, columns: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """`(ends [M + 1], rows [E], edges [E])` of a CSR of M columns: the rows of column m are
    `rows[ends[m]:ends[m + 1]]`, ascending, and `edges` are positions in `columns`. All int64.

    Cost: two passes over the edges (compiled), a stable sort elsewhere.
    """
    if columns.device.type == "cpu" and has_numba():
        counts = torch.bincount(columns, minlength=num_columns)
        ends = torch.zeros(num_columns + 1, dtype=torch.int64)
        torch.cumsum(counts, 0, out=ends[1:])
        rows, edges = torch.empty_like(columns), torch.empty_like(columns)
        place = ends[:-1].numpy().copy()
        _deal(indptr.numpy(), columns.numpy(), place, rows.numpy(), edges.numpy())
        return ends, rows, edges
    edges = torch.sort(columns, stable=True).indices
    ends = torch.zeros(num_columns + 1, dtype=torch.int64, device=columns.device)
    torch.cumsum(torch.bincount(columns, minlength=num_columns), 0, out=ends[1:])
    rows = torch.repeat_interleave(torch.arange(indptr.numel() - 1, device=columns.device), indptr.diff())
    return ends, rows[edges], edges


@njit
def _deal(indptr: Any, columns: Any, place: Any, rows: Any, edges: Any) -> None:
    """Edges to their columns, in order; `place`: where the next edge of each column goes."""
    for row in range(indptr.size - 1):
        for edge in range(indptr[row], indptr[row + 1]):
            at = np.int64(place[columns[edge]])
            rows[at] = row
            edges[at] = edge
            place[columns[edge]] = at + 1
