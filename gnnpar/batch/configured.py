"""The sampler that a configuration asks for, and what it deals out in an epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnpar.batch.chunked import ChunkedGraph
from gnnpar.batch.cluster import ClusterSampler
from gnnpar.batch.layerwise import LayerSampler, Linear
from gnnpar.batch.neighbour import NeighbourSampler
from gnnpar.batch.saint import SaintSampler
from gnnpar.batch.saint_draws import Draws, edge_draws, node_draws, walk_draws
from gnnpar.batch.sampled import Sampler
from gnnpar.batch.shadow import ShadowSampler
from gnnpar.config.schema import BatchConfig
from gnnpar.graph.graph import Graph
from gnnpar.partition import Partition, PartitionKey

__all__ = ["Seeds", "configured_sampler"]


@dataclass(frozen=True, eq=False)
class Seeds:
    """What an epoch deals out to mini-batches, and what each of them counts in the loss of a step.

    The loss of a step is Σ over the labelled entries of its mini-batches ÷ their number. Where a batch has
    loss weights, which make its loss a mean over all labelled vertices, it is the mean of the batches'
    estimates, each counting as many times as it has draws.

    Attributes:
        index: `[n]` of an epoch: labelled vertices, clusters, or numbers of draws.
        count: `[num_units]` by seed: labelled entries that it brings, or 1 for a draw.
        weighted: whether batches have loss weights.
        entries: labelled entries of a labelled vertex, on average.
    """

    index: Tensor
    count: Tensor
    weighted: bool = False
    entries: float = 1.0

    def total(self, step: Tensor) -> float:
        """What the loss of a step of these seeds is the mean over: labelled entries, or draws."""
        return float(self.count[step].sum())

    def share(self, own: Tensor, step: Tensor) -> float:
        """What the (weighted) summed loss of the batch of seeds `own` is multiplied by.

        Args:
            step: the seeds of all batches of the step.
        """
        total = self.total(step)
        if total == 0.0:
            return 0.0  # nobody has a label
        return float(self.count[own].sum()) / (total * self.entries) if self.weighted else 1.0 / total


def configured_sampler(
    batch: BatchConfig,
    chunked: ChunkedGraph,
    labelled: Tensor,
    *,
    hops: int,
    linear: Linear | None = None,
    seed: int = 0,
) -> tuple[Sampler, Seeds]:
    """The sampler of `batch.kind`, on the CPU.

    Args:
        chunked: the graph; its chunks are the clusters of `joined`.
        labelled: `[n]` vertices that carry loss.
        hops: of the last layers only, for samplers that go from the seeds outwards: a pipeline stage draws
            what it and the stages after it read, the same as if it had drawn all.
        linear: the aggregation that importance is measured on.

    Raises:
        InputError: what the sampler refuses.
    """
    graph = chunked.graph
    entries = torch.zeros(graph.num_nodes, dtype=torch.float64)
    known = (~graph.y.isnan()).sum(1) if graph.multi_label else torch.ones(graph.num_nodes)
    entries[labelled] = known[labelled].to(torch.float64)
    fanouts = (batch.fanouts or ())[: max(hops, 1)]
    if batch.kind == "neighbour":
        neighbour = NeighbourSampler(graph, fanouts, replace=batch.replace, labor=batch.labor)
        return neighbour, Seeds(labelled, entries)
    if batch.kind == "layerwise":
        kind = batch.importance
        layerwise = LayerSampler(graph, fanouts, kind, linear=linear, normalise=kind == "ladies")
        return layerwise, Seeds(labelled, entries)
    if batch.kind == "shadow":
        return ShadowSampler(graph, batch.depth, batch.budget), Seeds(labelled, entries)
    if batch.kind == "joined":
        of_clusters = torch.zeros(chunked.num_chunks, dtype=torch.float64)
        of_clusters.index_add_(0, chunked.chunk_of.long(), entries)
        clusters = ClusterSampler(graph, _clusters(chunked), labelled)
        return clusters, Seeds(torch.arange(chunked.num_chunks), of_clusters)
    draws, reach = _draws(batch, graph, seed)
    num_draws = -(-graph.num_nodes // reach)
    mean = float(entries.sum()) / max(labelled.numel(), 1)
    ones = torch.ones(num_draws, dtype=torch.float64)
    return SaintSampler(draws, labelled, num_draws), Seeds(torch.arange(num_draws), ones, True, mean)


def _draws(batch: BatchConfig, graph: Graph, seed: int) -> tuple[Draws, int]:
    """What a draw is, and how many vertices it reaches."""
    if batch.draws == "node":
        return node_draws(graph), 1
    if batch.draws == "edge":
        return edge_draws(graph), 2
    draws = walk_draws(graph, batch.walk_length, rounds=batch.walk_rounds, seed=seed)
    return draws, batch.walk_length + 1


def _clusters(chunked: ChunkedGraph) -> Partition:
    """The chunks as a partition of the renumbered graph."""
    key = PartitionKey(
        graph_fingerprint=chunked.graph.fingerprint,
        method="range",
        num_parts=chunked.num_chunks,
        seed=0,
        inner_order="none",
        cost_fingerprint="unit",
        version="",
    )
    return Partition(key, torch.arange(chunked.graph.num_nodes), torch.tensor(chunked.offsets))
