"""GraphSAGE layer with mean (or sum) aggregation."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.model.layer import Carries, Layer, Pull
from gnnpar.model.layers.common import Activation, finish, map_first
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["GraphSAGE"]


class GraphSAGE(Layer):
    """h' = act(norm(W_neigh mean_{u→v} x_u + W_root x_v + b)), x = dropout(h) (Hamilton et al. 2017, alg. 1).

    The cut is `W_neigh x` `[n, H']`, or `x` `[n, H]` where W_neigh widens. The root's dropout is drawn again
    in `after` (same key, same mask), so that nothing has to be kept for it. A vertex without in-edges has
    mean 0.

    Args:
        in_features, out_features: H, H'. aggregation: `mean` or `sum`.
        dropout, norm, activation: as in `GCN`.
    """

    reads_input = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        aggregation: Literal["mean", "sum"] = "mean",
        dropout: float = 0.0,
        norm: str | None = None,
        activation: Activation = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.operator = Pull(aggregation)
        self.dropout, self.activation = dropout, activation
        self.map_first = map_first(in_features, out_features)
        self.neigh = nn.Linear(in_features, out_features, bias=False)
        self.root = nn.Linear(in_features, out_features, bias=bias)
        self.norm = make_norm(norm, out_features)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        x = rows.dropout(h, self.dropout)
        return self.neigh(x) if self.map_first else x

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        if not self.map_first:
            z = self.neigh(z)
        z = z + self.root(rows.dropout(h, self.dropout))
        return finish(z, self.norm, self.activation, rows)
