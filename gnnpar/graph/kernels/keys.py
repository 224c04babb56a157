"""Which entries dropout keeps: a counter-based hash, so that a mask follows from what it masks alone.

The definition, in 32-bit arithmetic (products and sums modulo 2^32, `>>` shifts zeros in):

    (k0, k1) = two words of (seed, step, layer, site)                  once per call, `DropoutKey.words`
    (r0, r1) = mix(mix(low ^ k0) + high), mix(mix(low + k1) ^ high)    once per row; low, high: its id
    h = r0 ^ column * GOLDEN;  h = (h ^ h >> 16) * M1 ^ r1;  h = (h ^ h >> 15) * M2      once per entry
    kept where h >= round(p * 2^32)

with mix(x): x = (x ^ x >> 16) * M1; x = (x ^ x >> 15) * M2; x ^ x >> 16. The multipliers are
those of Wellons' `lowbias32`. 64 bits of state a row keep any two rows of a graph from sharing their masks.
For an edge, the row words of the destination take the place of (k0, k1) and the source that of the vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "GOLDEN",
    "M1",
    "M2",
    "DropoutKey",
    "edge_mask",
    "entry_hash",
    "keep_mask",
    "row_words",
    "threshold",
]

GOLDEN, M1, M2 = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class DropoutKey:
    """What a dropout mask depends on, besides the vertex and the column.

    Attributes:
        seed: of the run. step: optimizer steps so far. layer: global index of the layer.
        site: tells apart several dropouts of one layer.
    """

    seed: int
    step: int
    layer: int
    site: int

    def words(self) -> tuple[int, int]:
        """Two well mixed 32-bit words of the key."""
        state = 0
        for part in (self.seed, self.step, self.layer, self.site):
            state = _splitmix((state ^ part) & _LONG)
        return state & _WORD, state >> 32


def threshold(p: float) -> int:
    """Hashes below it are dropped: p · 2^32, rounded.

    Raises:
        ValueError: p outside [0, 1).
    """
    if not 0.0 <= p < 1.0:
        raise ValueError(f"dropout probability must lie in [0, 1), got {p}")
    return min(round(p * 2**32), _WORD)


def keep_mask(key: DropoutKey, ids: Tensor, width: int, p: float) -> Tensor:
    """`[n, width]` bool: which entries dropout keeps. The definition of the hash, on any device.

    Args:
        ids: `[n]` int64 original vertex ids. p: probability of dropping, in [0, 1).

    Cost: about ten passes over n · width int64 numbers; the compiled loops use none of it.
    """
    k0, k1 = key.words()
    return _keep(*row_words(ids, k0, k1), width, p)


def edge_mask(key: DropoutKey, dst_ids: Tensor, src_ids: Tensor, heads: int, p: float) -> Tensor:
    """`[E, heads]` bool: which attention coefficients dropout keeps, by destination, source and head."""
    k0, k1 = key.words()
    return _keep(*row_words(src_ids, *row_words(dst_ids, k0, k1)), heads, p)


def row_words(ids: Tensor, k0: int | Tensor, k1: int | Tensor) -> tuple[Tensor, Tensor]:
    low, high = ids & _WORD, (ids >> 32) & _WORD
    return _mix((_mix(low ^ k0) + high) & _WORD), _mix(_mix((low + k1) & _WORD) ^ high)


def entry_hash(r0: Tensor, r1: Tensor, column: Tensor) -> Tensor:
    h = r0 ^ column * GOLDEN & _WORD
    h = (h ^ h >> 16) * M1 & _WORD ^ r1
    return (h ^ h >> 15) * M2 & _WORD


def _keep(r0: Tensor, r1: Tensor, width: int, p: float) -> Tensor:
    return entry_hash(r0[:, None], r1[:, None], torch.arange(width, device=r0.device)) >= threshold(p)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ x >> 16) * M1 & _WORD
    x = (x ^ x >> 15) * M2 & _WORD
    return x ^ x >> 16


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _LONG
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _LONG
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _LONG
    return x ^ x >> 31
