"""Tiny graphs that leave nothing out: uneven degrees, an isolated vertex, unlabelled vertices."""

import torch

from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph

__all__ = ["chunk_assignment", "tiny_graph"]


def tiny_graph(
    directed=True,
    *,
    num_nodes=40,
    num_features=7,
    num_classes=3,
    sparse=False,
    weighted=False,
    edge_features=0,
    loops=False,
    multi_label=False,
    dtype=torch.float64,
    seed=0,
):
    """A graph of `num_nodes` vertices.

    Degrees fall off as 1/rank; vertex 5 is isolated, vertex 6 of a directed graph has out-edges only. Every
    fifth vertex is unlabelled, some of them inside the training mask. Sparse features have empty rows.
    `loops` adds three self loops.
    """
    gen = torch.Generator().manual_seed(seed)
    popularity = 1.0 / torch.arange(1, num_nodes + 1)
    popularity = popularity[torch.randperm(num_nodes, generator=gen)]
    popularity[5] = 0.0
    num_edges = 4 * num_nodes
    src = torch.multinomial(popularity, num_edges, replacement=True, generator=gen)
    dst = torch.randint(num_nodes, (num_edges,), generator=gen)
    keep = (src != dst) & (dst != 5) & (dst != 6)
    edges = torch.stack([src[keep], dst[keep]])
    edges = torch.cat([edges, torch.tensor([[6, 6], [7, 8]])], 1).unique(dim=1)
    if not directed:
        edges = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    if loops:
        edges = torch.cat([edges, torch.tensor([[1, 2, 9], [1, 2, 9]])], 1).unique(dim=1)
    weight = None
    if weighted:
        value = torch.rand(num_nodes, num_nodes, generator=gen, dtype=dtype) + 0.5
        value = value if directed else value + value.T
        weight = value[edges[0], edges[1]]
    attr = None
    if edge_features:
        attr = torch.randn(edges.shape[1], edge_features, generator=gen, dtype=dtype)
    labels = torch.randint(num_classes, (num_nodes,), generator=gen)
    x = torch.randn(num_nodes, num_features, generator=gen, dtype=dtype)
    x[:, :num_classes] += torch.nn.functional.one_hot(labels, num_classes)
    if sparse:
        x = x * (torch.rand(x.shape, generator=gen) < 0.4)
        x[3] = 0.0
        x = sparse_rows(x)
    if multi_label:
        y = (torch.rand(num_nodes, num_classes, generator=gen) < 0.4).to(dtype)
        y[torch.rand(y.shape, generator=gen) < 0.2] = float("nan")
    else:
        y = torch.where(torch.arange(num_nodes) % 5 == 0, -1, labels)
    part = torch.randint(4, (num_nodes,), generator=gen)
    part[5] = 0
    return Graph.from_edge_index(
        edges,
        num_nodes=num_nodes,
        x=x,
        y=y,
        train_mask=part <= 1,
        val_mask=part == 2,
        test_mask=part == 3,
        num_classes=num_classes,
        edge_weight=weight,
        edge_attr=attr,
        name="tiny",
    )


def sparse_rows(x):
    """`SparseRows` of a dense matrix."""
    rows, columns = x.nonzero(as_tuple=True)
    indptr = torch.zeros(x.shape[0] + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=x.shape[0]), 0, out=indptr[1:])
    return SparseRows(indptr, columns.to(torch.int32), x[rows, columns], x.shape[1])


def chunk_assignment(graph, num_chunks, seed=0):
    """`[N]` int32: chunks of uneven sizes, none empty, the last one without a vertex to train on."""
    gen = torch.Generator().manual_seed(seed)
    chance = 1.0 / torch.arange(2, num_chunks + 2)
    assignment = torch.multinomial(chance, graph.num_nodes, replacement=True, generator=gen).to(torch.int32)
    shuffled = torch.randperm(graph.num_nodes, generator=gen)
    assignment[shuffled[:num_chunks]] = torch.arange(num_chunks, dtype=torch.int32)
    last = num_chunks - 1
    if num_chunks > 1:
        assignment[(assignment == last) & graph.train_mask] = 0
        assignment[(~graph.train_mask).nonzero()[:3, 0]] = last
        missing = set(range(num_chunks)) - set(assignment.tolist())
        if missing:
            raise ValueError(f"chunks {missing} came out empty: take another seed")
    return assignment
