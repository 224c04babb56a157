"""Vertex features that stay sparse: CSR rows with the few operations that training needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SparseRows"]


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse feature matrix `[N, F]` in CSR form.

    Attributes:
        indptr: `[N + 1]` int64, absolute offsets into `indices` (not from 0 where rows are a slice).
        indices: `[nnz]` int32, feature columns, ascending within a row.
        values: `[nnz]` floating point.
        num_columns: F.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.indptr.numel() - 1, self.num_columns

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def rows(self, start: int, stop: int) -> SparseRows:
        """Rows `start:stop` as a view (no copy)."""
        return SparseRows(self.indptr[start : stop + 1], self.indices, self.values, self.num_columns)

    def select(self, rows: Tensor) -> SparseRows:
        """The given rows, copied. Cost: O(non-zeros selected)."""
        counts = self.indptr[1:] - self.indptr[:-1]
        counts = counts[rows]
        indptr = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        start = self.indptr[:-1][rows] - indptr[:-1]
        pick = torch.repeat_interleave(start, counts) + torch.arange(int(indptr[-1]), device=self.device)
        return SparseRows(indptr, self.indices[pick], self.values[pick], self.num_columns)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> SparseRows:
        return SparseRows(
            self.indptr.to(device), self.indices.to(device), self.values.to(device, dtype), self.num_columns
        )

    def to_dense(self) -> Tensor:
        num_rows = self.shape[0]
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        counts = self.indptr[1:] - self.indptr[:-1]
        row = torch.repeat_interleave(torch.arange(num_rows, device=self.device), counts)
        dense = torch.zeros(num_rows, self.num_columns, dtype=self.dtype, device=self.device)
        dense[row, self.indices[first:last].long()] = self.values[first:last]
        return dense
