"""Keyed dropout with gradients: one pass each way, no stored mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.kernels import passes
from gnnpar.graph.kernels.backend import Backend
from gnnpar.graph.kernels.keys import DropoutKey

__all__ = ["dropout", "relu_dropout"]


def dropout(x: Tensor, ids: Tensor, key: DropoutKey, p: float, *, backend: Backend | None = None) -> Tensor:
    """`x / (1 - p)` where `keep_mask(key, ids, H, p)`, else 0. The backward pass draws the same mask again.

    Args:
        x: `[n, H]` floating point. ids: `[n]` int64 original vertex ids. p: in [0, 1).

    Cost: one pass over x each way; keeps only ids.
    """
    return _Dropout.apply(x, ids, key, p, backend)  # type: ignore[no-any-return,no-untyped-call]


def relu_dropout(
    x: Tensor, ids: Tensor, key: DropoutKey, p: float, *, backend: Backend | None = None
) -> Tensor:
    """`dropout(relu(x), ids, key, p)` in one pass; the gradient flows where the result is positive.

    Args: as `dropout`. Cost: one pass each way; keeps only its result.
    """
    return _ReluDropout.apply(x, ids, key, p, backend)  # type: ignore[no-any-return,no-untyped-call]


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, key: DropoutKey, p: float, backend: Backend | None
    ) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.arguments = (key, p, backend)
        return passes.drop(
            x, ids, key, p, torch.empty(x.shape, dtype=x.dtype, device=x.device), backend=backend
        )

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # Linear in x, so the same function once more: differentiable as often as anyone likes.
        (ids,) = ctx.saved_tensors
        return _Dropout.apply(grads[0], ids, *ctx.arguments), None, None, None, None  # type: ignore[no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, key: DropoutKey, p: float, backend: Backend | None
    ) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        passes.relu_dropout_scaled(x, ids, key, p, None, out, backend=backend)
        ctx.save_for_backward(out)
        ctx.arguments = (p, backend)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (out,) = ctx.saved_tensors
        p, backend = ctx.arguments
        grad = torch.empty_like(out)
        passes.relu_dropout_backward(grads[0], out, p, None, grad, backend=backend)
        return grad, None, None, None, None
