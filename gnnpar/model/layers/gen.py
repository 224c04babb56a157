"""GEN layer (DeeperGCN)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.graph.block import Block
from gnnpar.model.edges import edge_softmax, edge_sum
from gnnpar.model.layer import Carries, Layer, Push
from gnnpar.model.layers.common import Activation, by_column, finish
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["GEN"]


class GEN(Layer):
    """h'_v = MLP(x_v + softmax-mean_t of m_u over u→v), m_u = relu(x_u [+ W e_uv]) + eps (Li et al. 2020).

    softmax-mean_t is Σ_u m_u exp(t m_u) / Σ_u exp(t m_u), column by column; x = dropout(h).
    MLP = Linear(H, expansion · H) → norm → relu → Linear(expansion · H, H'). With message normalisation the
    aggregate m is first made s · |x_v| · m / |m|, s learnt. The cut is `x` `[n, H]`.

    Args:
        in_features, out_features: H, H'.
        t: inverse temperature; learnt where `learn_t`.
        message_norm: whether to normalise the aggregate so.
        edge_features: K of `[E, K]` edge features to be added to the messages; 0 ignores them.
        dropout, activation: as in `GCN`. norm: inside the MLP, LayerNorm by default.

    Cost: tensors of `[E_b, H]` for the block at hand.
    """

    operator = Push()

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        t: float = 1.0,
        learn_t: bool = False,
        eps: float = 1e-7,
        message_norm: bool = False,
        edge_features: int = 0,
        expansion: int = 2,
        dropout: float = 0.0,
        norm: str | None = "layer",
        activation: Activation = None,
    ) -> None:
        super().__init__()
        self.dropout, self.activation, self.eps = dropout, activation, eps
        self.t: nn.Parameter | float = nn.Parameter(torch.tensor(t)) if learn_t else t
        self.message_scale = nn.Parameter(torch.ones(())) if message_norm else None
        self.edge = nn.Linear(edge_features, in_features, bias=False) if edge_features else None
        self.inner = nn.Linear(in_features, expansion * in_features)
        self.norm = make_norm(norm, expansion * in_features)
        self.outer = nn.Linear(expansion * in_features, out_features)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return rows.dropout(h, self.dropout)

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        row, own = block.rows, x[: block.num_rows]
        messages = x.index_select(0, block.columns)
        if self.edge is not None:
            if block.edge_attr is None:
                raise TypeError("GEN with edge_features needs a graph with edge_attr")
            messages = messages + self.edge(block.edge_attr)
        messages = F.relu(messages) + self.eps
        scores = by_column(self.t, messages) * messages
        z = edge_sum(messages * edge_softmax(scores, row, block.num_rows), row, block.num_rows)
        if self.message_scale is not None:
            length = own.norm(dim=-1, keepdim=True)
            z = F.normalize(z, dim=-1) * length * by_column(self.message_scale, z)
        return z + own

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        z = self.outer(finish(self.inner(z), self.norm, F.relu, rows))
        return finish(z, None, self.activation, rows)
