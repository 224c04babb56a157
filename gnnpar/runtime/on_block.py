"""Aggregation over a mini-batch's block as one differentiable operation; nothing per edge is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.graph import kernels
from gnnpar.graph.block import Block
from gnnpar.graph.norm import degree_scales
from gnnpar.model.layer import Layer, Pull
from gnnpar.model.rows import Rows

__all__ = ["aggregate", "pull_block"]


def aggregate(layer: Layer, x: Tensor, block: Block, rows: Rows) -> Tensor:
    """Z `[R, ...]` of a layer's cut `[M, ...]`, with autograd."""
    if not isinstance(layer.operator, Pull):
        return layer.aggregate(x, block, rows)
    z: Tensor = _PullBlock.apply(x, block, layer.operator)  # type: ignore[no-untyped-call]
    return z


class _PullBlock(torch.autograd.Function):
    """Z = r ⊙ (A + [loops] I)(c ⊙ X) over R rows and M columns; ∂X = c ⊙ (Aᵀ + [loops] I)(r ⊙ D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block, operator: Pull) -> Tensor:
        ctx.block, ctx.operator = block, operator
        return pull_block(x, block, operator)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        block: Block = ctx.block
        if not ctx.needs_input_grad[0]:
            return None, None, None
        indptr, rows, edge = block.transpose
        weight = None if block.edge_weight is None else block.edge_weight[edge]
        r, c = degree_scales(block.in_degree, ctx.operator, gradients[0].dtype)
        count = block.num_rows
        d = _scaled(gradients[0], None if r is None else r[:count])
        out = d.new_empty(block.num_columns, d.shape[1])
        # Rows are the first columns, and only they read themselves.
        loops = 0 if ctx.operator.self_loops else None
        for part, own in ((slice(0, count), loops), (slice(count, None), None)):
            ends = indptr[part.start : None if part.stop is None else part.stop + 1]
            scale = None if c is None else c[part]
            kernels.pull(ends, rows, d, out[part], weight=weight, scale=scale, self_rows=own)
        return out.view(len(out), *gradients[0].shape[1:]), None, None


@torch.no_grad()
def pull_block(x: Tensor, block: Block, operator: Pull, self_loops: bool = True) -> Tensor:
    """Z of `_PullBlock` `[R, ...]`, without autograd. `self_loops=False` leaves out those of the operator."""
    r, c = degree_scales(block.in_degree, operator, x.dtype)
    flat = _scaled(x, c)
    out = flat.new_empty(block.num_rows, flat.shape[1])
    kernels.pull(
        block.indptr,
        block.columns,
        flat,
        out,
        weight=block.edge_weight,
        scale=None if r is None else r[: block.num_rows],
        self_rows=0 if operator.self_loops and self_loops else None,
    )
    return out.view(len(out), *x.shape[1:])


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    """`[n, ...]` as a matrix, its rows times `scale` `[n]`."""
    flat = x.flatten(1)
    return flat if scale is None else kernels.scale_rows(flat, scale, torch.empty_like(flat))
