"""ShaDow: every seed in a small subgraph of its own, on which a model of any depth runs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnpar.batch.neighbour import check_count
from gnnpar.batch.sampled import Batch, BatchKey
from gnnpar.batch.structure import Structure, check_index
from gnnpar.errors import Faults
from gnnpar.graph.graph import Graph

__all__ = ["ShadowSampler"]


class ShadowSampler:
    """The ego subgraph of every seed: depth of the subgraph apart from depth of the model (Zeng et al. 2021,
    §3).

    From the seed outwards, each vertex that the last hop reached first adds up to `budget` of its
    in-neighbours, drawn without replacement; then all edges of the graph between the vertices of one ego are
    taken. Egos of a batch stay apart: a vertex occurs once in each that has it. An ego follows from its seed
    and the batch's key.

    Args:
        depth: hops. budget: neighbours a vertex adds; -1: all.

    Raises:
        InputError: a depth or budget that is not positive (or -1).

    Cost of a batch: O(edges into its vertices).
    """

    def __init__(self, graph: Graph, depth: int, budget: int) -> None:
        faults = Faults("ShaDow sampling")
        faults.extend([*check_count("depth", depth), *check_count("budget", budget, all_allowed=True)])
        faults.raise_if_any()
        self.depth, self.budget = depth, budget
        self._structure = Structure(graph)

    @property
    def num_units(self) -> int:
        """Seeds are vertices."""
        return self._structure.graph.num_nodes

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """See `Sampler`. One block for all layers, its degrees those of the egos; the seeds are the
        targets."""
        from gnnpar.batch.loops.subgraphs import egos

        structure = self._structure
        seeds = check_index("ShaDow sampling", "seeds", seeds, self.num_units)
        words = np.array([key.words(hop) for hop in range(self.depth)], np.int64).T.copy()
        with structure.mark() as mark:
            found = egos(structure.indptr, structure.indices, seeds.numpy(), self.budget, *words, mark)
        starts, vertices, ends, edges, columns = map(torch.from_numpy, found)
        block = structure.alone(vertices, ends, columns, edges)
        return Batch(key, vertices, (block,), (edges,), starts[:-1].clone())
