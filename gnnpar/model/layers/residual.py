"""Pre-activation residual blocks, such as ResGCN+."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gnnpar.graph.block import Block
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.layers.common import Site
from gnnpar.model.layers.gcn import GCN
from gnnpar.model.norm import make_norm
from gnnpar.model.rows import Rows

__all__ = ["PreActivation", "ResGCNPlus"]


class PreActivation(Layer):
    """h' = h + conv(dropout(relu(norm(h)))): the order "res+" of Li et al. 2020 (DeeperGCN, §3.4).

    The cut is the inner layer's.

    Args:
        conv: a graph layer of equal input and output width, without an activation of its own.
        width: H. norm: name of a normalisation, LayerNorm by default. dropout: probability, keyed by vertex.
    """

    reads_input = True

    def __init__(self, conv: Layer, width: int, *, norm: str | None = "layer", dropout: float = 0.0) -> None:
        super().__init__()
        self.operator, self.reads, self.writes = conv.operator, conv.reads, conv.writes
        self.norm = make_norm(norm, width)
        self.dropout = dropout
        self.conv = conv

    def _activate(self, h: Tensor, rows: Rows) -> Tensor:
        if self.norm is not None:
            h = self.norm(h, rows)
        return rows.relu_dropout(h, self.dropout, Site.PRE_ACTIVATION)

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return self.conv.before(self._activate(h, rows), carries, rows)

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        return self.conv.aggregate(x, block, rows)

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor | tuple[Tensor, Carries]:
        # The second look at the activated rows must not count twice in running statistics.
        own = self._activate(h, replace(rows, recomputing=True)) if self.conv.reads_input else h
        result = self.conv.after(z, own, carries, rows)
        if isinstance(result, tuple):
            return result[0] + h, result[1]
        return result + h


class ResGCNPlus(PreActivation):
    """ResGCN+: norm → relu → dropout → graph convolution → add (Li et al. 2020, §3.4), with `GCN` inside."""

    def __init__(self, width: int, *, norm: str | None = "layer", dropout: float = 0.0) -> None:
        super().__init__(GCN(width, width, activation=None), width, norm=norm, dropout=dropout)
