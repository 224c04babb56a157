"""Split backward: input gradients now (I), weight gradients later (W), for any layer.

While `DeferredWeights` is active, products with a parameter (`F.linear`, `@`, `mm`, `addmm`) are recorded so
that their backward pass yields only the gradient of the input; what the weight's gradient needs is put on a
list, and `add_weight_gradients` does the products later, those of several micro-batches at once. All other
parameters (scales, attention vectors) get their gradients with I. Results equal autograd's to rounding.

Source: zero-bubble schedules (Qi et al. 2024, §2) and 2BP (Rae et al. 2024, §3), which also concatenates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gnnpar.model.fused import WeightGradient

__all__ = ["DeferredWeights", "add_weight_gradients"]


def add_weight_gradients(pending: Iterable[WeightGradient]) -> None:
    """Do the products, one for each parameter: those of several micro-batches are concatenated."""
    by_parameter: defaultdict[tuple[int, float], list[WeightGradient]] = defaultdict(list)
    for one in pending:
        if not one.parameter.requires_grad:
            continue
        by_parameter[id(one.parameter), one.factor].append(one)
    with torch.no_grad():
        for group in by_parameter.values():
            parameter, factor = group[0].parameter, group[0].factor
            right = _joined([one.right for one in group])
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if group[0].left is None:
                parameter.grad.add_(right.sum(0), alpha=factor)
            else:
                left = _joined([one.left for one in group if one.left is not None])
                parameter.grad.addmm_(left.t(), right, alpha=factor)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class DeferredWeights(TorchFunctionMode):
    """Context for a forward pass whose weight gradients are to come later, on `pending`."""

    def __init__(self, pending: list[WeightGradient]) -> None:
        super().__init__()
        self.pending = pending

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        handler = _HANDLERS.get(func)
        if handler is not None and torch.is_grad_enabled():
            result = handler(self.pending, *args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


class _Product(torch.autograd.Function):
    """x `[n, a]` times W `[a, b]`, or Wᵀ of W `[b, a]`; backward gives ∂x and notes what ∂W needs."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        weight: list[Parameter],
        transposed: bool,
        pending: list[WeightGradient],
    ) -> Tensor:
        # The anchor requires a gradient even where x (the input features) does not.
        ctx.save_for_backward(x)
        ctx.weight, ctx.transposed, ctx.pending = weight[0], transposed, pending
        matrix = weight[0].detach()
        return x @ (matrix.t() if transposed else matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        (x,) = ctx.saved_tensors
        gradient = gradients[0]
        left, right = (gradient, x) if ctx.transposed else (x, gradient)
        ctx.pending.append(WeightGradient(ctx.weight, left, right))
        matrix = ctx.weight.detach()
        back = gradient @ (matrix if ctx.transposed else matrix.t()) if ctx.needs_input_grad[0] else None
        return back, None, None, None, None


class _Bias(torch.autograd.Function):
    """y + b by rows; backward notes what ∂b needs."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: list[Parameter], pending: list[WeightGradient]) -> Tensor:
        ctx.bias, ctx.pending = bias[0], pending
        return y + bias[0].detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        ctx.pending.append(WeightGradient(ctx.bias, None, gradients[0]))
        return gradients[0], None, None


def _defers(x: Any, weight: Any) -> bool:
    return (
        isinstance(weight, Parameter)
        and weight.requires_grad
        and isinstance(x, Tensor)
        and x.dim() == 2
        and weight.dim() == 2
    )


def _product(pending: list[WeightGradient], x: Tensor, weight: Parameter, transposed: bool) -> Tensor:
    anchor = torch.empty(0, dtype=x.dtype, device=x.device, requires_grad=True)
    # A list hides the parameter from autograd, which would ask for its gradient.
    result: Tensor = _Product.apply(x, anchor, [weight], transposed, pending)  # type: ignore[no-untyped-call]
    return result


def _linear(
    pending: list[WeightGradient], x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor | None:
    if not _defers(x, weight):
        return None
    y = _product(pending, x, weight, transposed=True)  # type: ignore[arg-type]
    if bias is None:
        return y
    if not isinstance(bias, Parameter):
        return y + bias
    result: Tensor = _Bias.apply(y, [bias], pending)  # type: ignore[no-untyped-call]
    return result


def _matmul(pending: list[WeightGradient], x: Tensor, weight: Tensor) -> Tensor | None:
    return _product(pending, x, weight, transposed=False) if _defers(x, weight) else None  # type: ignore[arg-type]


def _addmm(
    pending: list[WeightGradient],
    added: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor | None:
    if not _defers(x, weight) or isinstance(added, Parameter):
        return None
    return torch.add(beta * added, _product(pending, x, weight, transposed=False), alpha=alpha)  # type: ignore[arg-type]


_HANDLERS: dict[Any, Callable[..., Tensor | None]] = {
    F.linear: _linear,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.mm: _matmul,
    torch.Tensor.__matmul__: _matmul,
    torch.addmm: _addmm,
    torch.Tensor.addmm: _addmm,
}
