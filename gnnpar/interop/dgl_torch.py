"""DGL's kernels over edges as operations of torch: slower, and seen by whoever watches torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

__all__ = ["kernels_as_torch"]

_HOME = "dgl.backend.pytorch.sparse"
_ENDS = {"u": 0, "src": 0, "e": 1, "edge": 1, "v": 2, "dst": 2}


@contextmanager
def kernels_as_torch() -> Iterator[None]:
    """Inside, DGL's sums and products over the edges of one relation run as torch operations, with the same
    results to rounding. Does nothing where DGL has not been imported."""
    home: Any = sys.modules.get(_HOME)
    if home is None:
        yield
        return
    mine: dict[str, Callable[..., Any]] = {
        "_gspmm": partial(_gspmm, home._gspmm),
        "_gsddmm": _gsddmm,
        "_edge_softmax_forward": _softmax,
        "_edge_softmax_backward": _softmax_back,
    }
    theirs = {name: getattr(home, name) for name in mine}
    try:
        for name, function in mine.items():
            setattr(home, name, function)
        yield
    finally:
        for name, function in theirs.items():
            setattr(home, name, function)


def _gspmm(
    original: Callable[..., Any], gidx: Any, op: str, reduce_op: str, u: Tensor | None, e: Tensor | None
) -> Any:
    """⊕ over in-edges of `u op e`; also which edge and row was the extreme, where ⊕ is one."""
    source, row, _ = gidx.edges(0, "eid")
    message = _combined(op, None if op == "copy_rhs" else _of(u, source), None if op == "copy_lhs" else e)
    shape = gidx.num_nodes(gidx.metagraph.find_edge(0)[1]), *message.shape[1:]
    if reduce_op == "sum":
        return message.new_zeros(shape).index_add(0, row.long(), message), (None, None)
    index = row.long().view(-1, *[1] * (message.dim() - 1)).expand_as(message)
    kind, start = ("amax", -torch.inf) if reduce_op == "max" else ("amin", torch.inf)
    # DGL looks for infinity to tell the rows without an edge.
    extreme = message.new_full(shape, start).scatter_reduce(0, index, message, kind)
    return extreme, original(gidx, op, reduce_op, u, e)[1]


def _gsddmm(
    gidx: Any, op: str, lhs: Tensor | None, rhs: Tensor | None, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """`lhs op rhs` of every edge."""
    source, row, _ = gidx.edges(0, "eid")
    ends = (source, None, row)
    left = None if op == "copy_rhs" else _of(lhs, ends[_ENDS[lhs_target]])
    right = None if op == "copy_lhs" else _of(rhs, ends[_ENDS[rhs_target]])
    return _combined(op, left, right)


def _of(x: Tensor | None, index: Tensor | None) -> Tensor:
    assert x is not None
    return x if index is None else x.index_select(0, index.long())


def _combined(op: str, left: Tensor | None, right: Tensor | None) -> Tensor:
    if left is None or right is None:
        only = right if left is None else left
        assert only is not None
        return only
    rank = max(left.dim(), right.dim())
    left, right = (t.view(len(t), *[1] * (rank - t.dim()), *t.shape[1:]) for t in (left, right))
    if op == "dot":
        return (left * right).sum(-1, keepdim=True)
    operations: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
    }
    return operations[op](left, right)


def _softmax(gidx: Any, scores: Tensor, op: str) -> Tensor:
    _, row, _ = gidx.edges(0, "eid")
    row = row.long()
    rows = gidx.num_nodes(gidx.metagraph.find_edge(0)[1])
    index = row.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    peak = scores.new_zeros(rows, *scores.shape[1:]).scatter_reduce(
        0, index, scores, "amax", include_self=False
    )
    weight = (scores - peak.index_select(0, row)).exp()
    total = torch.zeros_like(peak).index_add(0, row, weight)
    return weight / total.index_select(0, row)


def _softmax_back(gidx: Any, out: Tensor, product: Tensor) -> Tensor:
    """∂scores, given the softmax and its product with the gradient."""
    _, row, _ = gidx.edges(0, "eid")
    row = row.long()
    rows = gidx.num_nodes(gidx.metagraph.find_edge(0)[1])
    total = out.new_zeros(rows, *out.shape[1:]).index_add(0, row, product)
    return product - out * total.index_select(0, row)
