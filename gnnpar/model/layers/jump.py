"""Jumping knowledge: what every layer found, gathered in one carry."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from gnnpar.graph.block import Block
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.layers.common import Site
from gnnpar.model.rows import Rows

__all__ = ["Jump", "JumpDecoder"]


class Jump(Layer):
    """The layer inside, and its output gathered into the carry `jk` (Xu et al. 2018, §4.1).

    `max`, `sum`: jk = max or Σ over the layers so far of h' `[n, H']`, for `Decoder(carry="jk")`.
    `cat`: a linear decoder of the concatenation is Σ_l h_l W_l, so the carry is that sum, `[n, C]`, and W_l
    lies here; it costs C numbers a vertex at every stage boundary in place of L · H. For `JumpDecoder`.

    Args:
        layer: any graph layer. first: True for the first layer that gathers.
        width, out_features: H' and C, for `cat`. dropout: of what is decoded, for `cat`.
    """

    def __init__(
        self,
        layer: Layer,
        mode: Literal["cat", "max", "sum"],
        *,
        first: bool,
        width: int = 0,
        out_features: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layer, self.mode, self.first, self.dropout = layer, mode, first, dropout
        self.operator, self.reads_input = layer.operator, layer.reads_input
        self.reads = layer.reads if first else (*layer.reads, "jk")
        self.writes = (*layer.writes, "jk")
        self.linear = nn.Linear(width, out_features, bias=False) if mode == "cat" else None

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return self.layer.before(h, carries, rows)

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        return self.layer.aggregate(x, block, rows)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> tuple[Tensor, Carries]:
        result = self.layer.after(z, h, carries, rows)
        out, written = result if isinstance(result, tuple) else (result, {})
        found = out
        if self.linear is not None:
            found = self.linear(rows.dropout(out, self.dropout, Site.JUMP))
        if not self.first:
            found = torch.maximum(carries["jk"], found) if self.mode == "max" else carries["jk"] + found
        return out, {**written, "jk": found}


class JumpDecoder(Layer):
    """logits = jk + b: the end of jumping knowledge by `cat`, whose linear maps lie in the layers."""

    operator = None
    reads = ("jk",)

    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_features))

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return carries["jk"] + self.bias
