"""`Fused`: the row-wise work between two aggregations as a few passes, differentiated by hand.

Autograd would make one pass over memory for every elementwise operation. Where two neighbouring layers know a
shorter way, `Layer.fused_with` returns it; results agree with the unfused layers to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.graph import kernels
from gnnpar.model.rows import Rows

__all__ = ["Fused", "ResidualLinearReluDropout", "WeightGradient"]


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """∂W += factor · leftᵀ · right, still to be done. left `[n, a]`, right `[n, b]`, W `[a, b]`.

    A bias is the case left = ones: `left` is None, W `[b]`.
    """

    parameter: Parameter
    left: Tensor | None
    right: Tensor
    factor: float = 1.0


class Fused(Protocol):
    """`after` of one layer and `before` of the next, from Z to the stored cut.

    Attributes:
        residual: carry R that the aggregation mixes in: Z = (1 - share) · ÂX + share · R.
        share: its weight.
    """

    residual: str
    share: float

    def forward(self, z: Tensor, rows: Rows, scale: Tensor | None, out: Tensor) -> None:
        """Write the next cut times `scale` `[n]` into `out` `[n, K]`, given the mixed z `[n, K]`."""

    def backward(self, gradient: Tensor, out: Tensor, z: Tensor) -> tuple[Tensor, WeightGradient]:
        """∂z and what ∂W needs, given the gradient of the unscaled cut, which is overwritten.

        Args:
            out: what `forward` wrote.
        """


class ResidualLinearReluDropout:
    """x = dropout(relu(z ((1 - β) I + β W))): GCNII's layer and the dropout of the one that follows.

    Two passes over `[n, K]` beside the matrix product forward, one beside the two products backward; keeps
    nothing but z and x, which exist anyway (x > 0 exactly where relu and dropout let the gradient through).

    Args:
        weight: W `[K, K]`. beta: β. dropout: of the layer that follows.
    """

    def __init__(self, weight: Parameter, beta: float, dropout: float, residual: str, share: float) -> None:
        self.weight = weight
        self.beta = beta
        self.dropout = dropout
        self.residual = residual
        self.share = share

    def forward(self, z: Tensor, rows: Rows, scale: Tensor | None, out: Tensor) -> None:
        key = rows.key() if self.dropout > 0.0 else None
        with torch.no_grad():
            y = z @ self._matrix()
        kernels.relu_dropout_scaled(y, rows.ids, key, self.dropout, scale, out)

    def backward(self, gradient: Tensor, out: Tensor, z: Tensor) -> tuple[Tensor, WeightGradient]:
        with torch.no_grad():
            kernels.relu_dropout_backward(gradient, out, self.dropout, None, gradient)
            return gradient @ self._matrix().t(), WeightGradient(self.weight, z, gradient, self.beta)

    def _matrix(self) -> Tensor:
        matrix = self.weight * self.beta
        matrix.diagonal().add_(1 - self.beta)
        return matrix
