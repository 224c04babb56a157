"""GCNII layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.model.fused import Fused, ResidualLinearReluDropout
from gnnpar.model.layer import Carries, Layer, Pull
from gnnpar.model.rows import Rows

__all__ = ["GCNII"]


class GCNII(Layer):
    """h' = relu((1-β) z + β z W), z = (1-α) Â x + α h0, x = dropout(h) (Chen et al. 2020, eq. 5).

    Â = D^-1/2 (A + I) D^-1/2 and β = ln(θ/l + 1). The cut is `x` `[n, H]`; `h0` `[n, H]` is the encoder's
    output.

    Args:
        width: H.
        layer: l, this layer's number among the model's GCNII layers, from 1.
        alpha: α, share of `h0`. theta: θ (the paper's λ), strength of W.
        dropout: probability, keyed by vertex.
    """

    operator = Pull("sym", self_loops=True)
    reads = ("h0",)

    def __init__(
        self, width: int, layer: int, *, alpha: float = 0.1, theta: float = 0.5, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.alpha, self.dropout = alpha, dropout
        self.beta = math.log(theta / layer + 1)
        self.weight = nn.Parameter(torch.empty(width, width))
        bound = 1 / math.sqrt(width)
        nn.init.uniform_(self.weight, -bound, bound)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return rows.dropout(h, self.dropout)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        z = torch.lerp(z, carries["h0"], self.alpha)
        return F.relu(torch.addmm(z, z, self.weight, beta=1 - self.beta, alpha=self.beta), inplace=True)

    def fused_with(self, ahead: Layer) -> Fused | None:
        # A subclass may have changed what lies between the two.
        if type(self) is not GCNII or type(ahead) is not GCNII or ahead.weight.shape != self.weight.shape:
            return None
        return ResidualLinearReluDropout(self.weight, self.beta, ahead.dropout, "h0", self.alpha)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, alpha={self.alpha}, beta={self.beta:.4f}, dropout={self.dropout}"
