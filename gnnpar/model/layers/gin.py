"""GIN layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.model.layer import Carries, Layer, Pull
from gnnpar.model.layers.common import Activation, by_column, finish
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["GIN"]


class GIN(Layer):
    """h' = act(MLP((1 + eps) x_v + Σ_{u→v} x_u)), x = dropout(h) (Xu et al. 2019, eq. 4.1).

    MLP = Linear(H, hidden) → norm → relu → Linear(hidden, H'). The cut is `x` `[n, H]`. The own row enters
    through the aggregation's self loop, and only `eps` looks at `h` again, so `eps=None` keeps no input.

    Args:
        in_features, out_features: H, H'. hidden: width inside the MLP, H' where not given.
        eps: start of the learnt eps; None fixes it at 0.
        dropout, norm, activation: as in `GCN`; the norm is that inside the MLP.
    """

    operator = Pull("sum", self_loops=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        eps: float | None = None,
        dropout: float = 0.0,
        norm: str | None = None,
        activation: Activation = F.relu,
    ) -> None:
        super().__init__()
        hidden = out_features if hidden is None else hidden
        self.dropout, self.activation = dropout, activation
        self.eps = None if eps is None else nn.Parameter(torch.tensor(float(eps)))
        self.reads_input = eps is not None
        self.inner = nn.Linear(in_features, hidden)
        self.norm = make_norm(norm, hidden)
        self.outer = nn.Linear(hidden, out_features)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return rows.dropout(h, self.dropout)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        if self.eps is not None:
            z = z + by_column(self.eps, z) * rows.dropout(h, self.dropout)
        z = self.outer(finish(self.inner(z), self.norm, F.relu, rows))
        return finish(z, None, self.activation, rows)
