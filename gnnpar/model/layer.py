"""What a layer is: rows → cut → aggregation → rows.

Every graph layer is written in three parts, so that the same code serves full batch, chunks with histories,
recomputation and exact evaluation:

    X  = before(h)           row-wise; X is the *cut*, what enters the aggregation (histories hold it)
    Z  = aggregation of X    a fixed linear `Pull`, or the layer's own `aggregate` over a `Block` (`Push`)
    h' = after(Z, h)         row-wise

Shapes: n rows, H width of h, K width of the cut, R rows and M columns of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from gnnpar.graph.block import Block
from gnnpar.model.fused import Fused
from gnnpar.model.norm import BatchNorm
from gnnpar.model.rows import Rows

__all__ = ["ENCODED", "FEATURES", "Carries", "Layer", "Pull", "Push"]

Carries = dict[str, Tensor]
"""Named tensors, one row per vertex, that travel beside `h` (such as GCNII's `h0`)."""

FEATURES = "features"
"""The carry that holds the input features. It never travels: every stage that reads them has them."""

ENCODED = "h0"
"""The carry that holds the encoder's output."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Fixed linear aggregation Z = r ⊙ (A + [self_loops] I)(c ⊙ X): nothing per edge is kept.

    norm: `sym` has r = c = d^-1/2, `mean` has r = 1/d, c = 1, `sum` has r = c = 1; d is the (weighted)
    in-degree, plus one with self loops; a vertex of degree 0 has scale 0. (On a directed graph `sym` uses
    the in-degree on both sides, as PyG's `gcn_norm` does.)
    """

    norm: Literal["sym", "mean", "sum"] = "sym"
    self_loops: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """Any other aggregation: `Layer.aggregate` maps the cut of a block's columns to its rows."""


class Layer(nn.Module):
    """Base of graph layers. Subclasses set `operator`, write `before`, `after` and, for `Push`, `aggregate`.

    Attributes:
        operator: `Pull`, `Push`, or None for a row-wise layer (then only `after(h, h, ...)` is called).
        reads_input: True where `after` looks at `h` (a residual, a root weight). False saves its memory.
        reads: names of carries that `before` or `after` looks at.
        writes: names of carries that `after` replaces (it then returns `(h', {name: tensor})`).
        takes_h: False for a row-wise layer that starts from carries alone; what came before is then not kept,
            nor sent, for it.
    """

    operator: Pull | Push | None = Pull()
    reads_input: bool = False
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    takes_h: bool = True

    @property
    def chunk_dependent(self) -> bool:
        """True where a row's result depends on which rows share its micro-batch (some normalisations)."""
        return any(getattr(type(module), "chunk_dependent", False) is True for module in self.modules())

    def commit(self) -> None:
        """End of a step: running statistics take up what the step's micro-batches saw."""
        for module in self.modules():
            if isinstance(module, BatchNorm):
                module.commit()

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        """`[n, H]` → the cut `[n, K]` (or `[n, ...]`)."""
        return h

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        """Push only: the cut of a block's columns `[M, K]` → `[R, ...]`. Differentiable in `x`."""
        raise TypeError(f"{type(self).__name__} declares Push but has no aggregate()")

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor | tuple[Tensor, Carries]:
        """Aggregated rows `[n, K]` and, where `reads_input`, the layer's input `[n, H]` → `[n, H']`."""
        return z

    def fused_with(self, ahead: Layer) -> Fused | None:
        """`after` of this layer and `before` of the one ahead as one hand-differentiated step, if any.

        Both layers aggregate by `Pull`.
        """
        return None
