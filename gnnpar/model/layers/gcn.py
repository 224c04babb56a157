"""GCN layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.model.layer import Carries, Layer, Pull
from gnnpar.model.layers.common import Activation, finish, map_first
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["GCN"]


class GCN(Layer):
    """h' = act(norm(Â dropout(h) W + b)), Â = D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017, §2).

    The cut is `dropout(h) W` `[n, min(H, H')]`; where W widens, it is `dropout(h)` and W follows the
    aggregation.

    Args:
        in_features, out_features: H, H'.
        dropout: probability, keyed by vertex.
        norm: name of a normalisation, see `gnnpar.model.norm`; None for none.
        activation: any row-wise function, or None.
    """

    operator = Pull("sym", self_loops=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        dropout: float = 0.0,
        norm: str | None = None,
        activation: Activation = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.dropout, self.activation = dropout, activation
        self.map_first = map_first(in_features, out_features)
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self.norm = make_norm(norm, out_features)
        nn.init.xavier_uniform_(self.linear.weight)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        x = rows.dropout(h, self.dropout)
        return self.linear(x) if self.map_first else x

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        if not self.map_first:
            z = F.linear(z, self.linear.weight, self.bias)
        elif self.bias is not None:
            z = z + self.bias
        return finish(z, self.norm, self.activation, rows)
