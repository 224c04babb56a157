"""What several layers share: the output tail, dropout sites, and when a linear map precedes the cut."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from torch import Tensor

from gnnpar.model.norm import Norm
from gnnpar.model.rows import Rows

__all__ = ["Activation", "Site", "by_column", "finish", "map_first"]

Activation = Callable[[Tensor], Tensor] | None


class Site(IntEnum):
    """Tells apart the dropouts of one layer, so that no two share a mask."""

    INPUT = 0
    ATTENTION = 1
    PRE_ACTIVATION = 2
    JUMP = 3


def map_first(in_features: int, out_features: int) -> bool:
    """Whether a linear map comes before the cut: unless it widens, for the cut is what is stored, sent."""
    return out_features <= in_features


def finish(z: Tensor, norm: Norm | None, activation: Activation, rows: Rows) -> Tensor:
    """Normalise, then activate."""
    if norm is not None:
        z = norm(z, rows)
    return z if activation is None else activation(z)


def by_column(scalar: Tensor | float, like: Tensor) -> Tensor | float:
    """A scalar parameter repeated for every column of `like` `[n, H]`.

    Its gradient is then summed column by column, in an order that the number of threads does not change.
    """
    return scalar.expand(like.shape[1]) if isinstance(scalar, Tensor) else scalar
