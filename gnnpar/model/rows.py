"""`Rows`: what a layer may know of the rows it is given, and the keyed dropout that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnpar.graph import kernels

__all__ = ["Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass. Dropout masks depend on these fields only, never on chunking or threads.

    Attributes:
        ids: `[n]` int64 original vertex ids.
        seed, step: of the run; `layer`: global index (0 = encoder, 1…L = layers, L + 1 = decoder).
        training: False in evaluation (dropout is the identity).
        recomputing: True while a forward pass is run again for its gradient (running statistics skip it).
    """

    ids: Tensor
    seed: int
    step: int
    layer: int
    training: bool
    recomputing: bool = False

    def key(self, site: int = 0) -> kernels.DropoutKey:
        """`site` tells apart several dropouts of one layer."""
        return kernels.DropoutKey(self.seed, self.step, self.layer, site)

    def dropout(self, x: Tensor, p: float, site: int = 0) -> Tensor:
        """Keyed dropout of `[n, H]`."""
        if not self.training or p == 0.0:
            return x
        return kernels.dropout(x, self.ids, self.key(site), p)

    def relu_dropout(self, x: Tensor, p: float, site: int = 0) -> Tensor:
        """`dropout(relu(x))` in one pass; keeps only its result for the gradient."""
        if not self.training or p == 0.0:
            return x.relu()
        return kernels.relu_dropout(x, self.ids, self.key(site), p)
