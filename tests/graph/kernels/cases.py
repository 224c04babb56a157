import importlib.util
from dataclasses import dataclass

import pytest
import torch

from gnnpar.graph.features import SparseRows


@dataclass
class Case:
    """A CSR whose rows are anything but alike: empty ones, one with most of the edges, repeated edges."""

    indptr: torch.Tensor
    indices: torch.Tensor
    weight: torch.Tensor
    num_columns: int

    @property
    def num_rows(self):
        return self.indptr.numel() - 1

    def dense(self, weighted, dtype=torch.float64):
        matrix = torch.zeros(self.num_rows, self.num_columns, dtype=dtype)
        rows = torch.repeat_interleave(torch.arange(self.num_rows), self.indptr.diff())
        own = slice(int(self.indptr[0]), int(self.indptr[-1]))
        value = self.weight[own] if weighted else torch.ones(rows.numel(), dtype=dtype)
        return matrix.index_put_((rows, self.indices[own].long()), value.to(dtype), accumulate=True)

    def rows(self, start, stop):
        return Case(self.indptr[start : stop + 1], self.indices, self.weight, self.num_columns)


def make_case(num_rows=60, num_columns=45, dtype=torch.float64, index=torch.int32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, 9, (num_rows,), generator=generator)
    degree[:2] = degree[num_rows // 2] = degree[-1] = 0
    degree[num_rows // 3] = 20 * num_rows
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    size = int(indptr[-1])
    indices = torch.randint(0, num_columns, (size,), generator=generator).to(index)
    return Case(indptr, indices, torch.randn(size, generator=generator, dtype=dtype), num_columns)


def make_sparse(num_rows=40, num_columns=30, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(num_rows, num_columns, generator=generator, dtype=dtype)
    dense[torch.rand(num_rows, num_columns, generator=generator) < 0.8] = 0
    dense[5] = dense[-1] = 0
    row, column = dense.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (dense != 0).sum(1).cumsum(0)])
    return SparseRows(indptr, column.int(), dense[row, column], num_columns), dense


NEEDS_DGL = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="DGL is not installed")
BACKENDS = ["numba", "torch"]
PULL_BACKENDS = [*BACKENDS, pytest.param("dgl", marks=NEEDS_DGL)]
