"""Renumbering by a partition, and the blocks of chunks against dense adjacency."""

import pytest
import torch
from runtime.cases import chunked_graph
from support.graphs import tiny_graph

from gnnpar.batch import ChunkedGraph, make_block
from gnnpar.errors import InputError
from gnnpar.history.edges import keep_edges
from gnnpar.partition import partition_graph


def edges_by_original_ids(graph):
    source, destination = graph.node_ids[graph.edge_index]
    return sorted(zip(source.tolist(), destination.tolist(), strict=True))


def with_edge_features(graph):
    draw = torch.Generator().manual_seed(4)
    return graph.replace(edge_attr=torch.rand(graph.num_edges, 2, dtype=torch.float64, generator=draw))


def dense(graph, values):
    """`[N, N, ...]`: `values` `[E, ...]` at (destination, source)."""
    out = torch.zeros(graph.num_nodes, graph.num_nodes, *values.shape[1:], dtype=values.dtype)
    out[graph.destinations, graph.indices.long()] = values
    return out


def test_build_renumbers_so_that_chunks_are_row_ranges(graph):
    partition = partition_graph(graph, 4, method="random", seed=2, inner_order="none")
    chunked = ChunkedGraph.build(graph, partition)
    assert chunked.num_chunks == 4
    assert chunked.offsets == tuple(partition.offsets.tolist())
    assert all(type(offset) is int for offset in chunked.offsets)
    assert torch.equal(chunked.graph.node_ids, partition.order)
    assert torch.equal(chunked.chunk_of, partition.assignment[partition.order])
    assert torch.equal(chunked.graph.x, graph.x[partition.order])
    assert torch.equal(chunked.graph.y, graph.y[partition.order])
    assert torch.equal(chunked.graph.train_mask, graph.train_mask[partition.order])
    assert edges_by_original_ids(chunked.graph) == edges_by_original_ids(graph)


def test_chunks_tile_the_rows():
    chunked = chunked_graph(5)
    assert [chunk.index for chunk in chunked.chunks] == list(range(5))
    assert sum(chunk.num_rows for chunk in chunked.chunks) == chunked.graph.num_nodes
    for chunk in chunked.chunks:
        assert set(chunked.chunk_of[chunk.start : chunk.stop].tolist()) == {chunk.index}
    assert (chunked.whole.start, chunked.whole.stop) == (0, chunked.graph.num_nodes)


def test_a_partition_of_another_graph_is_refused_with_both_fingerprints(graph):
    other = tiny_graph(seed=1)
    partition = partition_graph(other, 3, method="range")
    with pytest.raises(InputError, match="partition this graph again") as caught:
        ChunkedGraph.build(graph, partition)
    assert graph.fingerprint in str(caught.value) and other.fingerprint in str(caught.value)


def test_a_partition_serves_a_graph_with_the_same_edges_and_other_features(graph):
    partition = partition_graph(graph, 3, method="range")
    assert ChunkedGraph.build(graph.replace(x=graph.x + 1), partition).num_chunks == 3


def test_dtype_changes_real_numbers_only():
    chunked = chunked_graph(3, weighted=True)
    single = chunked.to(torch.float32, torch.device("cpu"))
    assert single.offsets == chunked.offsets
    assert single.graph.x.dtype == single.graph.edge_weight.dtype == torch.float32
    assert single.graph.y.dtype == torch.int64
    assert torch.equal(single.graph.indices, chunked.graph.indices)


@pytest.mark.parametrize("weighted", [False, True])
def test_isolated_chunks_keep_their_own_edges_only(weighted):
    chunked = chunked_graph(4, with_edge_features(tiny_graph(weighted=weighted)))
    graph, alone = chunked.graph, chunked.isolated.graph
    same = chunked.chunk_of[:, None] == chunked.chunk_of
    weight = torch.ones(graph.num_edges).double() if graph.edge_weight is None else graph.edge_weight
    left = torch.ones(alone.num_edges).double() if alone.edge_weight is None else alone.edge_weight
    assert 0 < alone.num_edges < graph.num_edges
    assert torch.equal(dense(alone, left), dense(graph, weight) * same)
    assert torch.equal(dense(alone, alone.edge_attr), dense(graph, graph.edge_attr) * same[..., None])
    assert chunked.isolated.offsets == chunked.offsets and torch.equal(alone.x, graph.x)
    assert torch.allclose(chunked.isolated.degrees[0].double(), dense(alone, left).sum(1))
    assert alone.indptr[0] == 0 and alone.indptr[-1] == alone.num_edges


def test_a_chunk_isolated_from_all_of_its_edges_is_left_with_none():
    from gnnpar.graph import Graph

    edges = torch.tensor([[2, 3, 0, 0], [0, 1, 2, 1]])  # between the chunks, but for 0 → 1
    alone = ChunkedGraph(Graph.from_edge_index(edges, num_nodes=4), (0, 2, 4)).isolated.graph
    assert alone.edge_index.tolist() == [[0], [1]] and alone.indptr.tolist() == [0, 0, 1, 1, 1]


def test_a_graph_without_edges_can_be_isolated():
    from gnnpar.graph import Graph

    none = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=4)
    alone = ChunkedGraph(none, (0, 2, 4)).isolated.graph
    assert alone.num_edges == 0 and alone.indptr.tolist() == [0] * 5


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_hold_their_rows_of_the_adjacency(weighted):
    chunked = chunked_graph(4, with_edge_features(tiny_graph(weighted=weighted)))
    graph = chunked.graph
    weight = torch.ones(graph.num_edges).double() if graph.edge_weight is None else graph.edge_weight
    adjacency, attributes = dense(graph, weight), dense(graph, graph.edge_attr)
    for chunk in chunked.chunks:
        block, vertices = make_block(chunked, chunk, graph.indptr, graph.indices, None)
        own = torch.arange(chunk.start, chunk.stop)
        assert block.num_rows == chunk.num_rows
        assert torch.equal(vertices[: chunk.num_rows], own)
        halo = vertices[chunk.num_rows :]
        assert torch.equal(halo, halo.unique()) and not torch.isin(halo, own).any()
        assert torch.equal(block.column_ids, graph.node_ids[vertices])
        assert torch.equal(block.row_ids, block.column_ids[: block.num_rows])
        held = torch.ones(block.num_edges).double() if block.edge_weight is None else block.edge_weight
        rebuilt = torch.zeros(chunk.num_rows, graph.num_nodes).double()
        rebuilt[block.rows, vertices[block.columns]] = held
        assert torch.equal(rebuilt, adjacency[own])
        assert torch.equal(block.edge_attr, attributes[own][block.rows, vertices[block.columns]])
        assert torch.allclose(block.in_degree.double(), adjacency.sum(1)[vertices])
        assert torch.allclose(block.out_degree.double(), adjacency.sum(0)[vertices])
        assert set(halo.tolist()) == set(adjacency[own].sum(0).nonzero()[:, 0].tolist()) - set(own.tolist())


def test_blocks_of_some_edges_take_weights_and_features_of_those():
    chunked = chunked_graph(4, with_edge_features(tiny_graph(weighted=True)))
    graph = chunked.graph
    position = torch.tensor([2, 0, 3, 1], dtype=torch.int32)
    number = torch.arange(graph.num_edges)
    kept = keep_edges(graph.indptr, graph.indices, chunked.chunk_of, position, "not_after", number)
    seen = 0
    for chunk in chunked.chunks:
        block, vertices = make_block(chunked, chunk, *kept)
        at = block.rows + chunk.start, vertices[block.columns]
        assert torch.equal(block.edge_weight, dense(graph, graph.edge_weight)[at])
        assert torch.equal(block.edge_attr, dense(graph, graph.edge_attr)[at])
        order = position[chunked.chunk_of.long()]
        assert bool((order[at[1]] <= order[at[0]]).all())
        seen += block.num_edges
    order = position[chunked.chunk_of.long()]
    assert seen == int((order[graph.indices.long()] <= order[graph.destinations]).sum())


def test_a_chunk_without_edges_has_a_block_of_its_own_rows():
    edges = torch.tensor([[0, 1], [1, 0]])
    from gnnpar.graph import Graph

    chunked = ChunkedGraph(Graph.from_edge_index(edges, num_nodes=4), (0, 2, 4))
    chunk = chunked.chunks[1]
    block, vertices = make_block(chunked, chunk, chunked.graph.indptr, chunked.graph.indices, None)
    assert block.num_edges == 0 and vertices.tolist() == [2, 3]
    assert block.indptr.tolist() == [0, 0, 0]
