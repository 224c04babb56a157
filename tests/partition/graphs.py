"""Small graphs for the tests of partitioning."""

import numpy as np
import torch

from gnnpar.graph.graph import Graph


def planted(num_groups=4, size=60, within=10, between=1.0, seed=0):
    """Undirected graph of `num_groups` dense groups, ids shuffled; mean degree about `within + between`."""
    rng = np.random.default_rng([seed, 1])  # not the stream of a method under test
    n = num_groups * size
    ids = rng.permutation(n)
    group = np.arange(n) // size
    num_inner, num_outer = int(n * within / 2), int(n * between / 2)
    a = rng.integers(0, n, num_inner)
    b = group[a] * size + rng.integers(0, size, num_inner)
    src = np.concatenate([a, rng.integers(0, n, num_outer)])
    dst = np.concatenate([b, rng.integers(0, n, num_outer)])
    keep = src != dst
    return from_edges(n, ids[src[keep]], ids[dst[keep]]).symmetrize()


def grid(side, seed=0):
    """Undirected `side` × `side` grid, ids shuffled."""
    ids = np.random.default_rng([seed, 2]).permutation(side * side).reshape(side, side)
    src = np.concatenate([ids[:-1].ravel(), ids[:, :-1].ravel()])
    dst = np.concatenate([ids[1:].ravel(), ids[:, 1:].ravel()])
    return from_edges(side * side, src, dst).symmetrize()


def from_edges(num_nodes, src, dst, coalesce=True):
    edges = np.stack([np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)])
    train = torch.arange(num_nodes) % 3 == 0
    return Graph.from_edge_index(
        torch.from_numpy(edges), num_nodes=num_nodes, train_mask=train, coalesce=coalesce, name="tiny"
    )


def cut_of(graph, partition):
    """Cut edges, counted one by one."""
    part = partition.assignment.tolist()
    return sum(part[u] != part[v] for u, v in graph.edge_index.T.tolist())
