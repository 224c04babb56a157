"""Neighbour sums by DGL, where it is installed and asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.interop.dgl import import_dgl

__all__ = ["block", "dgl_sum"]


def dgl_sum(indptr: Tensor, indices: Tensor, x: Tensor, weight: Tensor | None) -> Tensor:
    """Σ_e weight[e] · x[indices[e]] for every row of the CSR, `[R, K]`."""
    dgl = import_dgl()
    first, last = int(indptr[0]), int(indptr[-1])
    graph = block(indptr - first, indices[first:last], x.shape[0])
    if weight is None:
        total: Tensor = dgl.ops.copy_u_sum(graph, x)
    else:
        total = dgl.ops.u_mul_e_sum(graph, x, weight[first:last, None])
    return total


def block(indptr: Tensor, indices: Tensor, num_columns: int) -> Any:
    """A DGL block with int32 ids of the CSR `indptr` `[R + 1]`, `indices` `[E]`."""
    edges = torch.empty(0, dtype=torch.int32)
    sizes = {"num_src_nodes": num_columns, "num_dst_nodes": indptr.numel() - 1}
    return import_dgl().create_block(("csc", (indptr.int(), indices.int(), edges)), **sizes)
