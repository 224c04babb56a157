"""Compile, or load, the loops of a run before its first step."""

from __future__ import annotations

import torch

from gnnpar.graph.features import SparseRows
from gnnpar.graph.kernels import passes
from gnnpar.graph.kernels.dropout import dropout
from gnnpar.graph.kernels.keys import DropoutKey
from gnnpar.graph.kernels.pull import pull
from gnnpar.graph.kernels.sparse import sparse_linear
from gnnpar.graph.kernels.transpose import transpose

__all__ = ["warm_up"]


def warm_up(dtype: torch.dtype = torch.float32) -> None:
    """Call every loop once on two rows. One process of a host calls it before the others, which then load.

    Cost: seconds where nothing is cached, a fraction of one otherwise; nothing without numba.
    """
    x, ones, ids = torch.ones(2, 3, dtype=dtype), torch.ones(2, dtype=dtype), torch.arange(2)
    indptr, indices = torch.arange(3), torch.zeros(2, dtype=torch.int32)
    key, out = DropoutKey(0, 0, 0, 0), torch.empty_like(x)
    for weight in (None, ones):
        pull(indptr, indices, x, out, weight=weight)
    transpose(indptr, indices.long(), 1)
    passes.relu_dropout_backward(x, passes.relu_dropout_scaled(x, ids, key, 0.5, ones, out), 0.5, ones, x)
    passes.split_rows(x, ones, out, torch.zeros_like(x))
    passes.scale_rows(x, ones, out)
    passes.edge_keep_mask(key, ids, ids, 1, 0.5)
    dropout(x, ids, key, 0.5)
    linear = torch.ones(1, 2, dtype=dtype, requires_grad=True)
    with torch.enable_grad():
        y = sparse_linear(SparseRows(indptr, indices, ones, 1), linear, ids, key, 0.5)
        torch.autograd.grad(y, linear, torch.ones_like(y))
