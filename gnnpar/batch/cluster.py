"""Cluster batches: the subgraph of several parts of a partition, the edges between them restored."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gnnpar.batch.sampled import Batch, BatchKey
from gnnpar.batch.structure import Structure, check_index
from gnnpar.errors import Faults
from gnnpar.graph.graph import Graph
from gnnpar.partition import Partition

__all__ = ["ClusterSampler"]


class ClusterSampler:
    """Joins the clusters that it is given: their vertices, and every edge of the graph between those.

    Cluster-GCN (Chiang et al. 2019, §3.2): several clusters a batch, so that edges cut between them come back
    and batches are less alike inside; the adjacency is normalised again on what is there.

    Args:
        partition: of this graph; its parts are the clusters, and seeds are their numbers.
        index: `[n]` vertices that carry loss, wherever they lie.
        normalise: `batch`: degrees are those of the subgraph, as in the paper; `graph`: of the whole graph.

    Raises:
        InputError: a partition of another graph, an index outside it.

    Cost of a batch: O(edges into its vertices).
    """

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        index: Tensor,
        *,
        normalise: Literal["batch", "graph"] = "batch",
    ) -> None:
        partition.check(graph)
        faults = Faults("cluster sampling")
        if normalise not in ("batch", "graph"):
            faults.add(f"normalise: must be batch or graph, got {normalise!r}")
        faults.raise_if_any()
        self.normalise = normalise
        self._structure = Structure(graph)
        self._parts = torch.tensor_split(partition.order.to(torch.int64), partition.offsets[1:-1])
        self._carries = carries(graph, index, "cluster sampling")

    @property
    def num_units(self) -> int:
        """Seeds are clusters."""
        return len(self._parts)

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """See `Sampler`. Vertices come cluster by cluster. One block for all layers; nothing is drawn.

        Raises:
            InputError: also where a cluster is asked for twice.
        """
        seeds = check_index("cluster sampling", "clusters", seeds, self.num_units, distinct=True)
        chosen = [self._parts[part] for part in seeds.tolist()]
        vertices = torch.cat(chosen) if chosen else seeds
        ends, edges, columns = self._structure.induced(vertices)
        if self.normalise == "batch":
            block = self._structure.alone(vertices, ends, columns, edges)
        else:
            block = self._structure.block(self._structure.about(vertices), ends, columns, edges)
        return Batch(key, vertices, (block,), (edges,), self._carries[vertices].nonzero()[:, 0])


def carries(graph: Graph, index: Tensor, title: str) -> Tensor:
    """`[N]` bool: the vertices of an index set. Raises `InputError` where it leaves the graph."""
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[check_index(title, "index", index, graph.num_nodes)] = True
    return mask
