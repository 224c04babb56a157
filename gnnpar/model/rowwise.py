"""Plain torch modules that treat every row alone, as layers."""

from __future__ import annotations

import copy
from typing import Any, cast

from torch import Tensor, nn

from gnnpar.graph.features import SparseRows
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.layers.ends import sparse_or_dense_linear
from gnnpar.model.norm import BatchNorm
from gnnpar.model.rows import Rows

__all__ = ["RowWise", "deferred_batch_norm", "is_row_wise"]

_KNOWN: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Identity,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.Dropout,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Hardtanh,
    nn.Hardswish,
)


def is_row_wise(module: nn.Module) -> bool:
    """True for modules known to treat every row alone (batch normalisation included, as its own kind)."""
    if isinstance(module, nn.Sequential):
        return all(is_row_wise(child) for child in module)
    return isinstance(module, _KNOWN)


def deferred_batch_norm(module: nn.BatchNorm1d, kind: type[BatchNorm] = BatchNorm) -> BatchNorm:
    """Our `BatchNorm` (or a `kind` of it) over the same parameters and running statistics.

    Raises:
        ValueError: without running statistics, or with a cumulative average.
    """
    if module.running_mean is None or module.running_var is None or module.momentum is None:
        raise ValueError("BatchNorm1d needs track_running_stats=True and a momentum")
    norm = kind(module.num_features, module.eps, module.momentum)
    if module.affine:
        norm.weight, norm.bias = module.weight, module.bias
    else:
        norm.weight.requires_grad_(False)
        norm.bias.requires_grad_(False)
    norm.running_mean, norm.running_var = module.running_mean, module.running_var
    return norm


class RowWise(Layer):
    """A module of which row i of the output depends on row i of the input only: `[n, H]` → `[n, H']`.

    `nn.Dropout` inside (also in an `nn.Sequential`) becomes keyed dropout, `nn.BatchNorm1d` becomes
    `BatchNorm`. A leading `nn.Linear`, with or without dropout before it, takes `SparseRows`.

    Args:
        module: the module; wrapping it says that it is row-wise.
    """

    operator = None

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = _convert(module)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        steps = list(self.module) if isinstance(self.module, nn.Sequential) else [self.module]
        x: Any = z  # a row of features may come sparse
        p, site = 0.0, 0
        for step in _flatten(steps):
            if isinstance(step, nn.Dropout):
                if isinstance(x, SparseRows):
                    p = step.p
                else:
                    x = rows.dropout(x, step.p, site)
                site += 1
            elif isinstance(x, SparseRows):
                if not isinstance(step, nn.Linear):
                    raise TypeError(
                        f"{type(step).__name__} cannot read sparse features: begin with nn.Linear"
                    )
                x = sparse_or_dense_linear(x, step.weight.t(), rows, p)
                x = x if step.bias is None else x + step.bias
            else:
                x = step(x, rows) if isinstance(step, BatchNorm) else step(x)
        return cast(Tensor, x)


def _convert(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.BatchNorm1d):
        return deferred_batch_norm(module)
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*[_convert(child) for child in module])
    if getattr(module, "inplace", False):
        # Its input may be a leaf of the segment, or what an earlier layer left for its gradient.
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    return module


def _flatten(steps: list[nn.Module]) -> list[nn.Module]:
    flat: list[nn.Module] = []
    for step in steps:
        flat += _flatten(list(step)) if isinstance(step, nn.Sequential) else [step]
    return flat
