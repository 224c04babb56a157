"""GAT layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnpar.graph import kernels
from gnnpar.graph.block import Block
from gnnpar.model.edges import edge_softmax, edge_sum
from gnnpar.model.layer import Carries, Layer, Push
from gnnpar.model.layers.common import Activation, Site, finish
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["GAT"]


class GAT(Layer):
    """h'_v = act(norm(‖_k Σ_u dropout(a_uv^k) W^k x_u + b)), x = dropout(h) (Veličković et al. 2018, §2.1).

    a_uv^k = softmax_u leaky_relu(s^k · W^k x_u + t^k · W^k x_v) over the in-edges of v and v itself: every
    vertex has exactly one self loop, stored loops or not, as in PyG. The cut is `W x` `[n, heads ·
    out_features]`.

    Args:
        in_features, out_features: H, and the width of one head.
        heads: attention heads, concatenated, or averaged where `concat` is False.
        dropout: of the input, keyed by vertex.
        attention_dropout: of the coefficients, keyed by (destination, source, head).
        norm, activation: as in `GCN`.

    Cost: tensors of `[E_b, heads · out_features]` for the block at hand.
    """

    operator = Push()

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        negative_slope: float = 0.2,
        norm: str | None = None,
        activation: Activation = F.elu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.concat, self.negative_slope = heads, concat, negative_slope
        self.dropout, self.attention_dropout, self.activation = dropout, attention_dropout, activation
        width = heads * out_features if concat else out_features
        self.linear = nn.Linear(in_features, heads * out_features, bias=False)
        self.source = nn.Parameter(torch.empty(heads, out_features))
        self.destination = nn.Parameter(torch.empty(heads, out_features))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.norm = make_norm(norm, width)
        for weight in (self.linear.weight, self.source, self.destination):
            nn.init.xavier_uniform_(weight)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        x: Tensor = self.linear(rows.dropout(h, self.dropout))
        return x

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        num_rows = block.num_rows
        x = x.view(len(x), self.heads, -1)
        own = torch.arange(num_rows, device=x.device)
        source, row = block.columns, block.rows
        other = source != row
        source, row = torch.cat([source[other], own]), torch.cat([row[other], own])

        from_source = (x * self.source).sum(-1)
        from_row = (x[:num_rows] * self.destination).sum(-1)
        scores = from_source.index_select(0, source) + from_row.index_select(0, row)
        attention = edge_softmax(F.leaky_relu(scores, self.negative_slope), row, num_rows)
        if rows.training and self.attention_dropout > 0.0:
            p = self.attention_dropout
            ids = block.row_ids[row], block.column_ids[source]
            keep = kernels.edge_keep_mask(rows.key(Site.ATTENTION), *ids, self.heads, p)
            attention = attention * keep.to(attention.dtype) * (1 / (1 - p))
        z = edge_sum(x.index_select(0, source) * attention.unsqueeze(-1), row, num_rows)
        return z.flatten(1) if self.concat else z.mean(dim=1)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        if self.bias is not None:
            z = z + self.bias
        return finish(z, self.norm, self.activation, rows)
