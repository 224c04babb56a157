"""What one torch operation costs: work and depth as expressions in the sizes of its tensors.

Work counts one operation for every element that an operation of torch computes (two for a multiply-add of a
matrix product, five and more for a normalisation), and one for every element that is moved along an edge.
Depth is the longest chain of them with as many processors as one likes: a sum of s numbers takes log s. Index
arithmetic, views, allocations and plain copies are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnpar.analysis.expr import ONE, ZERO, Expr, log2, symbol
from gnnpar.analysis.sizes import Sizes

__all__ = ["ADDING", "GATHER", "LINEAR", "SCATTER", "Cost", "cost_of", "name_of"]

ADDING = frozenset({"index_add", "scatter_add", "index_put", "_index_put_impl", "segment_reduce"})
SCATTER = ADDING | {"scatter_reduce", "index_reduce"}
GATHER = frozenset({"index_select", "index", "gather", "embedding", "_unsafe_index"})
SUMS = frozenset({"sum", "mean"})
_REDUCTIONS = SUMS | {"amax", "amin", "max", "min", "prod", "norm", "linalg_vector_norm", "logsumexp"}
# fmt: off
_FREE = frozenset(
    {"view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze",
     "squeeze", "select", "slice", "detach", "alias", "clone", "copy", "contiguous", "empty",
     "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like",
     "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill", "zero",
     "arange", "lift_fresh", "_to_copy", "cat", "stack", "split", "split_with_sizes", "unbind",
     "chunk", "as_strided", "scalar_tensor", "slice_backward", "select_backward", "repeat",
     "constant_pad_nd", "unfold", "diagonal", "lift", "narrow", "expand_as", "is_same_size",
     "resolve_conj", "_reshape_alias"}
)
# fmt: on
_BILINEAR = frozenset({"mm", "addmm", "bmm", "add", "sub", "rsub", "neg", "mul", "div", "lerp"})
LINEAR = _FREE | GATHER | ADDING | SUMS | _BILINEAR
"""Operations that may be linear in the features: products only where one factor does not depend on them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one operation.

    Attributes:
        work: of matrix products. beside: of everything else it does.
        depths: of every output.
    """

    work: Expr
    beside: Expr
    depths: tuple[Expr, ...]

    @property
    def is_product(self) -> bool:
        return bool(self.work)


def name_of(func: Any) -> str:
    """`aten::index_add_` → `index_add`."""
    return str(func._schema.name).partition("::")[2].rstrip("_")


def cost_of(name: str, args: Sequence[Any], outputs: Sequence[Tensor], sizes: Sizes) -> Cost | None:
    """None where the operation is free. `outputs`: those that hold real numbers."""
    if name in _FREE or not outputs:
        return None
    out = sizes.numel(outputs[0].shape)
    if name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"):
        return _product(name, args, out, sizes)
    first = next((a for a in args if isinstance(a, Tensor)), outputs[0])
    if name in GATHER:
        return Cost(ZERO, out, (ONE,))
    if name in SCATTER:
        source = max((a for a in _tensors(args) if a.is_floating_point()), key=lambda t: t.numel())
        return Cost(ZERO, sizes.numel(source.shape), (log2(symbol("d")),))
    if name in _REDUCTIONS:
        whole = sizes.numel(first.shape)
        return Cost(ZERO, whole, (log2(whole) - log2(out),))
    if name == "var_mean":
        whole = sizes.numel(first.shape)
        return Cost(ZERO, whole * 3, ((log2(whole) - log2(out)) * 2 + 2,) * 2)
    if name in ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"):
        along = log2(sizes.of(outputs[0].shape[args[2] if "backward" in name else args[1]]))
        return Cost(ZERO, out * 4, (along * 2 + 3,))
    if "norm" in name and ("native" in name or "fused" in name):
        return _norm(name, args, outputs, sizes)
    return Cost(ZERO, sum((sizes.numel(one.shape) for one in outputs), ZERO), (ONE,) * len(outputs))


def _product(name: str, args: Sequence[Any], out: Expr, sizes: Sizes) -> Cost:
    adds = name.startswith(("add", "badd"))
    left = args[1] if adds else args[0]
    inner = sizes.of(left.shape[-1])
    beside = out if adds else ZERO
    return Cost(out * inner * 2, beside, (log2(inner) + (2 if adds else 1),))


def _norm(name: str, args: Sequence[Any], outputs: Sequence[Tensor], sizes: Sizes) -> Cost:
    """Normalisation of every row as one operation: mean, variance, scale; gradients of scale and shift."""
    x = max(_tensors(args), key=lambda t: t.numel())
    whole, rows = sizes.numel(x.shape), sizes.of(x.shape[0])
    along = log2(whole) - log2(rows)
    if "backward" not in name:
        affine = 2 if any(isinstance(one, Tensor) for one in args[2:]) else 0
        return Cost(ZERO, whole * (5 + affine), (along * 2 + 3 + affine,) * len(outputs))
    return Cost(ZERO, whole * 11, (along * 2 + 4, *(log2(rows) + 2 for _ in outputs[1:])))


def _tensors(args: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for one in args:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += [inner for inner in one if isinstance(inner, torch.Tensor)]
    return found
