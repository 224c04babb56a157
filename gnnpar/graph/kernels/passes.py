"""Elementwise passes over rows without autograd, written straight into a caller's rows.

For segments that are differentiated by hand: mask, activation and row scale at once; `out` may be any rows of
a larger buffer, or the input itself, and is returned. Threads: `torch.get_num_threads()`.

Shapes: x, grad, y, out `[n, H]`; ids `[n]` int64 original vertex ids; scale `[n]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.kernels.backend import Backend, blocks, choose, dense_rows, matrix, number, run, vector
from gnnpar.graph.kernels.keys import DropoutKey, edge_mask, keep_mask, threshold

__all__ = [
    "drop",
    "edge_keep_mask",
    "relu_dropout_backward",
    "relu_dropout_scaled",
    "scale_rows",
    "split_rows",
]


def drop(
    x: Tensor, ids: Tensor, key: DropoutKey, p: float, out: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """out = x / (1 - p) where kept, else 0."""
    low = threshold(p)
    if choose(backend, x) == "torch":
        with torch.no_grad():
            return out.copy_(torch.where(keep_mask(key, ids, x.shape[1], p), x * (1 / (1 - p)), 0))
    from gnnpar.graph.kernels.loops.dropout import drop_rows

    x = dense_rows(x)
    state = vector(ids, torch.int64, x.shape[0]), *key.words(), low, number(x.dtype)(1 / (1 - p))
    return _run(drop_rows, out, *_matrix(x, out), *state)


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
    """out[i] = scale[i] · relu(x[i]) / (1 - p) where kept, else 0.

    No key: no dropout. No scale may be negative.
    """
    if key is None:
        p = 0.0
    low = threshold(p)
    if choose(backend, x) == "torch":
        with torch.no_grad():
            y = x.relu() * (1 / (1 - p))
            y = y if scale is None else y * scale[:, None]
            return out.copy_(y if key is None else torch.where(keep_mask(key, ids, x.shape[1], p), y, 0))
    from gnnpar.graph.kernels.loops.dropout import relu_drop_rows

    x = dense_rows(x)
    words = (0, 0) if key is None else key.words()
    state = vector(ids, torch.int64, x.shape[0]), *words, low, number(x.dtype)(1 / (1 - p))
    return _run(relu_drop_rows, out, *_matrix(x, out), *state, vector(scale, x.dtype, x.shape[0]))


def relu_dropout_backward(
    grad: Tensor, y: Tensor, p: float, scale: Tensor | None, out: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Gradient of `relu_dropout_scaled`: out[i] = scale[i] · grad[i] / (1 - p) where y[i] > 0, else 0.

    y is the result of `relu_dropout_scaled`; p = 0 where that had no key.
    """
    if choose(backend, y) == "torch":
        with torch.no_grad():
            flow = grad * (1 / (1 - p))
            return out.copy_(torch.where(y > 0, flow if scale is None else flow * scale[:, None], 0))
    from gnnpar.graph.kernels.loops.dropout import relu_drop_backward_rows

    grad, y = dense_rows(grad), dense_rows(y)
    factor = number(y.dtype)(1 / (1 - p))
    scales = vector(scale, y.dtype, y.shape[0])
    return _run(relu_drop_backward_rows, out, *_matrix(grad, out), *_matrix(y, out), factor, scales)


def scale_rows(x: Tensor, scale: Tensor | None, out: Tensor, *, backend: Backend | None = None) -> Tensor:
    """out[i] = scale[i] · x[i]; a copy without scale."""
    if scale is None or choose(backend, x) == "torch":
        with torch.no_grad():
            return out.copy_(x if scale is None else x * scale[:, None])
    from gnnpar.graph.kernels.loops.dropout import scale_rows as loop

    x = dense_rows(x)
    return _run(loop, out, *_matrix(x, out), vector(scale, x.dtype, x.shape[0]), number(x.dtype)(0))


def split_rows(
    x: Tensor,
    scale: Tensor | None,
    out: Tensor,
    total: Tensor,
    *,
    a: float = 1.0,
    b: float = 1.0,
    backend: Backend | None = None,
) -> Tensor:
    """out[i] = a · scale[i] · x[i] and total[i] += b · x[i]: a gradient for neighbours and residual."""
    if choose(backend, x) == "torch":
        with torch.no_grad():
            total.add_(x, alpha=b)
            return out.copy_(a * x if scale is None else (a * scale)[:, None] * x)
    from gnnpar.graph.kernels.loops.dropout import split_rows as loop

    x, kind = dense_rows(x), number(x.dtype)
    scales = vector(scale, x.dtype, x.shape[0])
    return _run(loop, out, *_matrix(x, out), scales, kind(a), kind(b), *_matrix(total, out))


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

    num_edges = dst_ids.numel()
    dst_ids, src_ids = dst_ids.contiguous(), src_ids.contiguous()
    out = torch.empty(num_edges, heads, dtype=torch.bool)
    ids = vector(dst_ids, torch.int64, num_edges), vector(src_ids, torch.int64, num_edges)
    run(edge_mask_rows, blocks(num_edges, out.numel()), *ids, *key.words(), low, out.data_ptr(), heads)
    return out


def _matrix(tensor: Tensor, out: Tensor) -> tuple[int, int]:
    return matrix(tensor, out.dtype, *out.shape)


def _run(loop: Any, out: Tensor, *arguments: Any) -> Tensor:
    num_rows, width = out.shape
    run(loop, blocks(num_rows, num_rows * width), *arguments, *_matrix(out, out), width)
    return out
