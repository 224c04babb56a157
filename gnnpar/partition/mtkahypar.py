"""Mt-KaHyPar (Gottesbüren et al. 2021), all cores. Runs in a child process: imports nothing of gnnpar."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer[Any]]

IMBALANCE = 0.03


def solve(indptr: IntArray, indices: IntArray, weight: IntArray, num_parts: int, seed: int) -> IntArray:
    """`[N]` part of every vertex, up to 3% imbalance. The preset is the one that no thread count changes."""
    import mtkahypar

    num_nodes = weight.size
    # The deterministic preset ignores the library's seed; a renumbering of the vertices it cannot ignore.
    new_id = np.random.default_rng(seed).permutation(num_nodes)
    rows = np.repeat(np.arange(num_nodes), np.diff(indptr))
    once = rows < indices
    edges = new_id[np.stack([rows[once], indices[once]], axis=1)]
    node_weight = np.empty_like(weight)
    node_weight[new_id] = weight
    library = mtkahypar.initialize(os.cpu_count() or 1, False)
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(num_parts, IMBALANCE, mtkahypar.Objective.CUT)
    context.logging = False
    edge_weight = np.ones(len(edges), dtype=np.int64)
    graph = library.create_graph(context, num_nodes, len(edges), edges, node_weight, edge_weight)
    part = np.asarray(graph.partition(context).get_partition(), dtype=np.int32)
    return part[new_id]
