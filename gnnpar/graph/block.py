"""`Block`: the rows a pass computes and the columns it reads, for operators that look at single edges."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.kernels.transpose import transpose

__all__ = ["Block"]


@dataclass(frozen=True, eq=False)
class Block:
    """Bipartite view of a graph: R rows (destinations) read M columns (sources).

    The rows are the first R columns, so `x_src[:R]` are the rows' own values. Degrees are those of the
    *whole* graph, so that a normalisation on a block equals the one on the graph.

    Attributes:
        num_rows: R.
        indptr: `[R + 1]` int64; row r's edges are `indptr[r]:indptr[r+1]`, in the graph's CSR order.
        columns: `[E_b]` int64, local column of each edge's source.
        row_ids: `[R]` int64 original vertex ids of the rows.
        column_ids: `[M]` int64 original vertex ids of the columns; `column_ids[:R] == row_ids`.
        in_degree: `[M]` whole-graph in-degree of each column. out_degree: `[M]` likewise.
        edge_weight: `[E_b]` or None. edge_attr: `[E_b, K]` or None.
    """

    num_rows: int
    indptr: Tensor
    columns: Tensor
    row_ids: Tensor
    column_ids: Tensor
    in_degree: Tensor
    out_degree: Tensor
    edge_weight: Tensor | None = None
    edge_attr: Tensor | None = None

    @property
    def num_columns(self) -> int:
        return self.column_ids.numel()

    @property
    def num_edges(self) -> int:
        return self.columns.numel()

    @property
    def rows(self) -> Tensor:
        """`[E_b]` int64, local row of each edge's destination."""
        counts = self.indptr[1:] - self.indptr[:-1]
        return torch.repeat_interleave(torch.arange(self.num_rows, device=self.columns.device), counts)

    @property
    def edge_index(self) -> Tensor:
        """`[2, E_b]` (local source column, local destination row)."""
        return torch.stack([self.columns, self.rows])

    @cached_property
    def transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """CSR of the columns: `(indptr [M + 1], rows [E_b], edge [E_b])`; `edge` indexes `columns`."""
        return transpose(self.indptr, self.columns, self.num_columns)

    def to(self, device: torch.device) -> Block:
        """The block with all its tensors on `device`; itself where they are."""
        if self.columns.device == device:
            return self
        moved: dict[str, Any] = {
            field.name: value.to(device)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)
