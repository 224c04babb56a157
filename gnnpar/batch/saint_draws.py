"""What one draw of GraphSAINT reaches, and with which probability it reaches a vertex, or both ends of an
edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnpar.batch.layerwise import Linear
from gnnpar.batch.neighbour import check_count
from gnnpar.batch.sampled import BatchKey
from gnnpar.batch.structure import Choice, uniform
from gnnpar.errors import Faults, InputError
from gnnpar.graph.graph import Graph
from gnnpar.graph.norm import scales

__all__ = ["Draws", "edge_draws", "node_draws", "walk_draws"]


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent, equally distributed draws of vertices of a graph.

    Attributes:
        reach: numbers of draws `[n]` and key → the vertices reached, repeats and all, `[m]` int64.
        visit: `[N]` float64, the probability that one draw reaches a vertex.
        pair: `[E]` float64, that it reaches both ends of an edge.
    """

    graph: Graph
    reach: Callable[[Tensor, BatchKey], Tensor]
    visit: Tensor
    pair: Tensor


def node_draws(graph: Graph, linear: Linear | None = None) -> Draws:
    """One vertex a draw, u with probability ∝ Σ_v P(v, u)² (§3.4, "random node sampler").

    P is the aggregation (`mean` with self loops where not given), its diagonal included.

    Raises:
        InputError: a graph without vertices.
    """
    _check_size(graph.num_nodes, "vertices")
    by = scales(graph, linear or Linear("mean", True), torch.float64)
    ones = torch.ones(graph.num_nodes, dtype=torch.float64)
    row = ones if by.r is None else by.r
    weight = torch.ones(graph.num_edges, dtype=torch.float64) if by.weight is None else by.weight
    square = torch.zeros_like(ones).index_add_(0, graph.indices, (row[graph.destinations] * weight) ** 2)
    if by.self_loops:
        square += row**2
    if by.c is not None:
        square *= by.c**2
    if not bool(square.sum() > 0):
        raise InputError("GraphSAINT", ["no vertex is read by any; take self loops, or draw walks"])
    visit = square / square.sum()
    loop = graph.destinations == graph.indices
    pair = torch.where(loop, visit[graph.destinations], 0.0)
    choice = Choice(visit)
    return Draws(graph, lambda draws, key: choice(key.words(0), draws), visit, pair)


def edge_draws(graph: Graph) -> Draws:
    """Both ends of one edge u → v a draw, with probability ∝ 1/deg(u) + 1/deg(v) (§3.4, theorem 2).

    deg: in-edges; 1/0 counts as 0. A vertex without edges is never drawn, so its loss is never seen.

    Raises:
        InputError: a graph without edges.
    """
    _check_size(graph.num_edges, "edges")
    source, destination = graph.edge_index
    inverse = torch.where(graph.in_degree > 0, 1.0 / graph.in_degree.to(torch.float64), 0.0)
    chance = inverse[source] + inverse[destination]
    choice = Choice(chance)
    chance = choice.q
    visit = torch.zeros_like(inverse).index_add_(0, destination, chance)
    visit.index_add_(0, source, torch.where(source == destination, 0.0, chance))
    # An edge and its reverse, or its copies, join the same two vertices.
    ends = torch.minimum(source, destination) * graph.num_nodes + torch.maximum(source, destination)
    kinds, kind = torch.unique(ends, return_inverse=True)
    pair = chance.new_zeros(kinds.numel()).index_add_(0, kind, chance)[kind]
    pair = torch.where(source == destination, visit[source], pair)

    def reach(draws: Tensor, key: BatchKey) -> Tensor:
        edges = choice(key.words(0), draws)
        return torch.cat([source[edges], destination[edges]])

    return Draws(graph, reach, visit, pair)


def walk_draws(graph: Graph, length: int, *, rounds: int = 50, seed: int = 0) -> Draws:
    """One walk a draw: from a uniform root, `length` steps to uniform in-neighbours (§3.4, "random walk").

    A walk stays where there is no in-neighbour. Its probabilities have no closed form: they are shares of
    `rounds` walks from every vertex, none taken below what is certain (1/N; 1/(N deg(v)) for both ends of an
    edge, u ≠ v): relative error about √(1/(N · rounds · probability)).

    Raises:
        InputError: a graph without vertices, a length or rounds that are not positive.

    Cost: O(N · rounds · length² · log E) once.
    """
    from gnnpar.batch.loops.walks import count_visits, walks

    _check_size(graph.num_nodes, "vertices")
    faults = Faults("GraphSAINT")
    faults.extend([*check_count("length", length), *check_count("rounds", rounds)])
    faults.raise_if_any()
    indptr, indices, num_nodes = graph.indptr.numpy(), graph.indices.numpy(), graph.num_nodes
    visits, pairs = np.zeros(num_nodes, np.int64), np.zeros(graph.num_edges, np.int64)
    count_visits(indptr, indices, rounds, length, *BatchKey(seed, 0, 0).words(-1), visits, pairs)
    num_walks = num_nodes * rounds
    visit = (torch.from_numpy(visits) / num_walks).to(torch.float64).clamp(min=1 / num_nodes)
    degree = graph.in_degree[graph.destinations].to(torch.float64)
    pair = torch.maximum(torch.from_numpy(pairs).to(torch.float64) / num_walks, 1 / (num_nodes * degree))

    def reach(draws: Tensor, key: BatchKey) -> Tensor:
        paths = np.empty((draws.numel(), length + 1), np.int64)
        paths[:, 0] = (uniform(key.words(0), draws) * num_nodes).to(torch.int64).numpy()
        walks(indptr, indices, draws.numpy(), *key.words(1), paths)
        return torch.from_numpy(paths).flatten()

    return Draws(graph, reach, visit, pair)


def _check_size(count: int, what: str) -> None:
    if not count:
        raise InputError("GraphSAINT", [f"the graph has no {what} to draw"])
