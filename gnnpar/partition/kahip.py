"""KaHIP's KaFFPa (Sanders and Schulz 2011). Runs in a child process: imports nothing of gnnpar."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer[Any]]

IMBALANCE = 0.03
MAX_SEED = 2**31 - 1


def solve(indptr: IntArray, indices: IntArray, weight: IntArray, num_parts: int, seed: int) -> IntArray:
    """`[N]` part of every vertex, up to 3% imbalance, with the preset for power-law graphs."""
    import kahip

    edge_weight = np.ones(indices.size, dtype=np.int32)
    graph = (weight.astype(np.int32), indptr.astype(np.int32), edge_weight, indices.astype(np.int32))
    quiet = True
    _, part = kahip.kaffpa(*graph, num_parts, IMBALANCE, quiet, seed % MAX_SEED, kahip.FASTSOCIAL)
    return np.asarray(part, dtype=np.int32)
