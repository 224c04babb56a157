"""The hash of `gnnpar.graph.kernels.keys` in 32-bit lanes. Casts keep numba from widening to 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnpar.graph.kernels import keys
from gnnpar.graph.kernels.compile import jit

__all__ = ["entry_hash", "row_words"]

_GOLDEN, _M1, _M2 = np.uint32(keys.GOLDEN), np.uint32(keys.M1), np.uint32(keys.M2)
_15, _16 = np.uint32(15), np.uint32(16)


@jit
def _mix(x: Any) -> Any:
    x = np.uint32(np.uint32(x ^ np.uint32(x >> _16)) * _M1)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> _15)) * _M2)
    return np.uint32(x ^ np.uint32(x >> _16))


@jit
def row_words(row: Any, k0: Any, k1: Any) -> Any:
    """Hash state of a vertex id (int64) under the key's words."""
    low, high = np.uint32(row & 0xFFFFFFFF), np.uint32((row >> 32) & 0xFFFFFFFF)
    r0 = _mix(np.uint32(_mix(np.uint32(low ^ k0)) + high))
    r1 = _mix(np.uint32(_mix(np.uint32(low + k1)) ^ high))
    return r0, r1


@jit
def entry_hash(r0: Any, r1: Any, column: Any) -> Any:
    h = np.uint32(r0 ^ np.uint32(np.uint32(column) * _GOLDEN))
    h = np.uint32(np.uint32(np.uint32(h ^ np.uint32(h >> _16)) * _M1) ^ r1)
    return np.uint32(np.uint32(h ^ np.uint32(h >> _15)) * _M2)
