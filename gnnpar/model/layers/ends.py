"""Encoder and decoder: the row-wise ends of a model."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.graph import kernels
from gnnpar.graph.features import SparseRows
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.layers.common import Activation, finish
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["Decoder", "Encoder", "sparse_or_dense_linear"]


def sparse_or_dense_linear(x: Tensor | SparseRows, weight: Tensor, rows: Rows, p: float) -> Tensor:
    """`dropout(x) W`: x `[n, F]`, W `[F, H]`. Sparse rows stay sparse; the mask is the same either way."""
    if isinstance(x, SparseRows):
        key = rows.key() if rows.training and p > 0.0 else None
        return kernels.sparse_linear(x, weight, rows.ids, key, p)
    return rows.dropout(x, p) @ weight


class Encoder(Layer):
    """h = act(dropout(x) W + b): x `[n, F]` dense or `SparseRows` → `[n, H]`.

    Args:
        in_features, out_features: F, H. dropout: of the features, keyed by vertex and column.
    """

    operator = None

    def __init__(
        self, in_features: int, out_features: int, *, dropout: float = 0.0, activation: Activation = F.relu
    ) -> None:
        super().__init__()
        self.dropout, self.activation = dropout, activation
        # Stored [F, H], so that a sparse row reads contiguous rows of the weight.
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        bound = 1 / math.sqrt(max(in_features, 1))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        z = sparse_or_dense_linear(z, self.weight, rows, self.dropout) + self.bias
        return finish(z, None, self.activation, rows)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}, dropout={self.dropout}"


class Decoder(Layer):
    """logits = dropout(h) W + b: `[n, H]` → `[n, C]`. With `pre_activation`, h is first made relu(norm(h)).

    Args:
        in_features, out_features: H, C.
        norm, pre_activation: close a chain of `PreActivation` blocks.
        carry: name of a carry to decode instead of `h` (jumping knowledge by max or sum).
    """

    operator = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        dropout: float = 0.0,
        norm: str | None = None,
        pre_activation: bool = False,
        carry: str | None = None,
    ) -> None:
        super().__init__()
        self.dropout, self.pre_activation, self.carry = dropout, pre_activation, carry
        self.reads = () if carry is None else (carry,)
        self.norm = make_norm(norm, in_features)
        self.linear = nn.Linear(in_features, out_features)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        x = z if self.carry is None else carries[self.carry]
        if self.norm is not None:
            x = self.norm(x, rows)
        x = rows.relu_dropout(x, self.dropout) if self.pre_activation else rows.dropout(x, self.dropout)
        logits: Tensor = self.linear(x)
        return logits
