"""Elementwise passes over rows without autograd, written straight into a caller's rows.

For segments that are differentiated by hand: mask, activation and row scale at once, `out` being any rows of a
larger buffer. Shapes: x, grad, y, out `[n, H]`, ids `[n]` int64 original vertex ids, scale `[n]`. The result is
`out`, which may be the input itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnpar.graph.kernels.backend import Backend, array, choose, flat, row_blocks, run_blocks
from gnnpar.graph.kernels.keys import DropoutKey, edge_mask, keep_mask, threshold

__all__ = ["drop", "edge_keep_mask", "relu_dropout_backward", "relu_dropout_scaled", "scale_rows"]


@torch.no_grad()
def drop(
    x: Tensor, ids: Tensor, key: DropoutKey, p: float, out: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """out = x / (1 - p) where kept, else 0."""
    low = threshold(p)
    if choose(backend, x) == "torch":
        return out.copy_(torch.where(keep_mask(key, ids, x.shape[1], p), x * (1 / (1 - p)), 0))
    from gnnpar.graph.kernels.loops.dropout import drop_rows

    number = _number(x)
    _run(
        drop_rows, x, *flat(x), array(ids, ids), _words(key), np.uint32(low), number(1 / (1 - p)), *flat(out)
    )
    return out


@torch.no_grad()
def relu_dropout_scaled(
    x: Tensor,
    ids: Tensor,
    key: DropoutKey | None,
    p: float,
    scale: Tensor | None,
    out: Tensor,
    *,
    backend: Backend | None = None,
) -> Tensor:
    """out[i] = scale[i] · relu(x[i]) / (1 - p) where kept, else 0. No key: no dropout. scale must not be negative."""
    if key is None:
        p = 0.0
    low = threshold(p)
    if choose(backend, x) == "torch":
        y = x.relu() * (1 / (1 - p))
        y = y if scale is None else y * scale[:, None]
        return out.copy_(y if key is None else torch.where(keep_mask(key, ids, x.shape[1], p), y, 0))
    from gnnpar.graph.kernels.loops.dropout import relu_drop_rows

    number = _number(x)
    words = _words(key or DropoutKey(0, 0, 0, 0))
    state = (array(ids, ids), words, np.uint32(low), number(1 / (1 - p)), array(scale, x))
    _run(relu_drop_rows, x, *flat(x), *state, *flat(out))
    return out


@torch.no_grad()
def relu_dropout_backward(
    grad: Tensor, y: Tensor, p: float, scale: Tensor | None, out: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Gradient of `relu_dropout_scaled` from its result y: out[i] = scale[i] · grad[i] / (1 - p) where y[i] > 0."""
    if choose(backend, y) == "torch":
        flow = grad * (1 / (1 - p))
        return out.copy_(torch.where(y > 0, flow if scale is None else flow * scale[:, None], 0))
    from gnnpar.graph.kernels.loops.dropout import relu_drop_backward_rows

    _run(
        relu_drop_backward_rows,
        y,
        *flat(grad),
        *flat(y),
        _number(y)(1 / (1 - p)),
        array(scale, y),
        *flat(out),
    )
    return out


@torch.no_grad()
def scale_rows(x: Tensor, scale: Tensor | None, out: Tensor, *, backend: Backend | None = None) -> Tensor:
    """out[i] = scale[i] · x[i]; a copy without scale."""
    if scale is None:
        return out.copy_(x)
    if choose(backend, x) == "torch":
        return torch.mul(x, scale[:, None], out=out)
    from gnnpar.graph.kernels.loops.dropout import scale_rows as loop

    _run(loop, x, *flat(x), array(scale, x), *flat(out))
    return out


@torch.no_grad()
def edge_keep_mask(
    key: DropoutKey, dst_ids: Tensor, src_ids: Tensor, heads: int, p: float, *, backend: Backend | None = None
) -> Tensor:
    """`[E, heads]` bool: which attention coefficients dropout keeps, keyed by destination, source and head.

    Args:
        dst_ids, src_ids: `[E]` int64 original vertex ids.
    """
    low = threshold(p)
    if choose(backend, torch.empty(0, device=dst_ids.device)) == "torch":
        return edge_mask(key, dst_ids, src_ids, heads, p)
    from gnnpar.graph.kernels.loops.dropout import edge_mask_rows

    out = torch.empty(dst_ids.numel(), heads, dtype=torch.bool)
    ids = array(dst_ids, dst_ids), array(src_ids, src_ids)
    _run(edge_mask_rows, out, *ids, _words(key), np.uint32(low), out.view(-1).numpy())
    return out


def _run(loop: Any, like: Tensor, *arguments: Any) -> None:
    run_blocks(loop, row_blocks(like.shape[0], like.numel()), *arguments, like.shape[1])


def _number(like: Tensor) -> Any:
    """Scalar type of a tensor: a Python float would make numba compute in float64."""
    return like.detach().numpy().dtype.type


def _words(key: DropoutKey) -> tuple[np.uint32, np.uint32]:
    k0, k1 = key.words()
    return np.uint32(k0), np.uint32(k1)
