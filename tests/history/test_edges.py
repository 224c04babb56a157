"""Edges kept and redirected by the order of their chunks, against dense masks, compiled and not."""

import pytest
import torch
from runtime.cases import chunked_graph
from support.graphs import tiny_graph

from gnnpar.graph import Graph
from gnnpar.history import edges as module
from gnnpar.history.edges import keep_edges, redirect_edges

COMPARE = {"not_after": torch.le, "not_before": torch.ge, "together": torch.eq}


@pytest.fixture(params=["numba", "torch"], autouse=True)
def loops(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(module, "has_numba", lambda: False)


@pytest.fixture(params=[(0, 1, 2, 3), (2, 0, 3, 1), (1, 0, 0, 1), (0, 0, 0, 0)])
def position(request):
    """Place of every chunk in the step; chunks of one slot share theirs."""
    return torch.tensor(request.param, dtype=torch.int32)


@pytest.mark.parametrize("relation", COMPARE)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_kept_edges_are_those_of_a_mask(position, relation, weighted, directed):
    chunked = chunked_graph(4, directed=directed, weighted=weighted)
    graph = chunked.graph
    indptr, indices, weight = keep_edges(
        graph.indptr, graph.indices, chunked.chunk_of, position, relation, graph.edge_weight
    )
    at = position[chunked.chunk_of.long()]
    mask = COMPARE[relation](at[graph.indices.long()], at[graph.destinations])
    assert torch.equal(indices, graph.indices[mask])
    counts = torch.bincount(graph.destinations[mask], minlength=graph.num_nodes)
    assert torch.equal(indptr.diff(), counts) and indptr[0] == 0
    assert (indptr.dtype, indices.dtype) == (graph.indptr.dtype, graph.indices.dtype)
    if weighted:
        assert torch.equal(weight, graph.edge_weight[mask])
    else:
        assert weight is None


def test_numbers_of_edges_pass_for_weights(position):
    chunked = chunked_graph(4)
    graph = chunked.graph
    number = torch.arange(graph.num_edges)
    _, indices, kept = keep_edges(
        graph.indptr, graph.indices, chunked.chunk_of, position, "not_after", number
    )
    assert kept.dtype == torch.int64 and torch.equal(graph.indices[kept], indices)


@pytest.mark.parametrize(("fresh", "stale"), [(0, 40), (40, 0)])
def test_columns_are_redirected_to_one_copy_or_the_other(position, fresh, stale):
    chunked = chunked_graph(4)
    graph = chunked.graph
    out = torch.full_like(graph.indices, -1)
    found = redirect_edges(graph.indptr, graph.indices, chunked.chunk_of, position, fresh, stale, out)
    at = position[chunked.chunk_of.long()]
    early = at[graph.indices.long()] <= at[graph.destinations]
    assert found is out
    assert torch.equal(out, graph.indices + torch.where(early, fresh, stale).to(graph.indices.dtype))


@pytest.mark.parametrize("relation", COMPARE)
def test_a_graph_without_edges_keeps_none(relation):
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    chunk_of, position = torch.tensor([0, 0, 1], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32)
    indptr, indices, _ = keep_edges(graph.indptr, graph.indices, chunk_of, position, relation)
    assert indptr.tolist() == [0, 0, 0, 0] and indices.numel() == 0
    assert redirect_edges(graph.indptr, graph.indices, chunk_of, position, 0, 3, indices).numel() == 0


def test_wide_indices_are_served_too():
    graph = tiny_graph()
    chunk_of = (torch.arange(graph.num_nodes) % 3).to(torch.int32)
    position = torch.tensor([1, 2, 0], dtype=torch.int32)
    narrow = keep_edges(graph.indptr, graph.indices, chunk_of, position, "not_before")
    wide = keep_edges(graph.indptr, graph.indices.long(), chunk_of, position, "not_before")
    assert torch.equal(narrow[0], wide[0]) and torch.equal(narrow[1].long(), wide[1])
