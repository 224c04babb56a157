"""Cluster batches: all edges of the graph between the clusters' vertices, and no others."""

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import KEY, assert_batch, same_batch

from gnnpar.batch import ClusterSampler
from gnnpar.errors import InputError
from gnnpar.partition import partition_graph

INDEX = torch.tensor([0, 3, 5, 17, 18, 19, 30])


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"edge_features": 2}, {"loops": True}])
@pytest.mark.parametrize("normalise", ["batch", "graph"])
@pytest.mark.parametrize("directed", [True, False])
def test_joined_clusters_are_the_induced_subgraph(directed, normalise, options):
    graph = tiny_graph(directed, **options)
    partition = partition_graph(graph, 5, seed=1)
    sampler = ClusterSampler(graph, partition, INDEX, normalise=normalise)
    assert sampler.num_units == 5
    cut_edges = 0
    for parts in ([0], [3, 1], [4, 0, 2], [0, 1, 2, 3, 4]):
        batch = sampler.sample(torch.tensor(parts), KEY)
        assert_batch(graph, batch, whole_degrees=normalise == "graph")
        inside = torch.isin(partition.assignment, torch.tensor(parts))
        assert torch.equal(batch.vertices.sort().values, inside.nonzero()[:, 0])
        (edges,) = batch.edge_ids
        expected = inside[graph.destinations] & inside[graph.indices.long()]
        assert torch.equal(edges.sort().values, expected.nonzero()[:, 0])
        of = partition.assignment
        cut_edges += int((of[graph.destinations[edges]] != of[graph.indices[edges].long()]).sum())
        assert torch.equal(batch.target_vertices.sort().values, INDEX[inside[INDEX]])
        assert batch.loss_weight is None
        (block,) = batch.blocks
        assert batch.block(0) is batch.block(7) is block
        assert (block.edge_weight is None) == (graph.edge_weight is None)
        if graph.edge_weight is not None:
            assert torch.equal(block.edge_weight, graph.edge_weight[edges])
    assert cut_edges > 0


@pytest.mark.parametrize("weighted", [False, True])
def test_degrees_are_counted_again_inside_the_batch(weighted):
    graph = tiny_graph(weighted=weighted)
    batch = ClusterSampler(graph, partition_graph(graph, 5), INDEX).sample(torch.tensor([3, 1]), KEY)
    (block,) = batch.blocks
    size = block.num_columns
    inside = torch.zeros(size, size, dtype=torch.float64)
    weight = torch.ones(block.num_edges).double() if block.edge_weight is None else block.edge_weight
    inside[block.rows, block.columns] = weight
    assert torch.allclose(block.in_degree.double(), inside.sum(1))
    assert torch.allclose(block.out_degree.double(), inside.sum(0))


def test_vertices_come_cluster_by_cluster(graph):
    partition = partition_graph(graph, 5)
    batch = ClusterSampler(graph, partition, INDEX).sample(torch.tensor([3, 1]), KEY)
    parts = partition.assignment[batch.vertices]
    assert parts.unique_consecutive().tolist() == [3, 1]


def test_no_clusters_and_no_labelled_vertex(graph):
    sampler = ClusterSampler(graph, partition_graph(graph, 5), INDEX[:0])
    empty = sampler.sample(torch.tensor([], dtype=torch.int64), KEY)
    assert empty.vertices.numel() == empty.blocks[0].num_edges == 0
    assert sampler.sample(torch.tensor([2]), KEY).targets.numel() == 0


def test_nothing_depends_on_the_key(graph):
    sampler, parts = ClusterSampler(graph, partition_graph(graph, 5), INDEX), torch.tensor([1, 4])
    assert same_batch(sampler.sample(parts, KEY), sampler.sample(parts, KEY))


def test_bad_input(graph):
    partition = partition_graph(graph, 5)
    with pytest.raises(InputError) as error:
        ClusterSampler(graph, partition, INDEX).sample(torch.tensor([1, 1, 5]), KEY)
    assert error.value.faults == (
        "clusters: 1 of 3 outside 0..4, the first at position 2: 5",
        "clusters: 1 occurs more than once",
    )
    with pytest.raises(InputError, match="partition this graph again"):
        ClusterSampler(tiny_graph(seed=1), partition, INDEX)
    with pytest.raises(InputError, match=r"index: 1 of 2 outside 0\.\.39"):
        ClusterSampler(graph, partition, torch.tensor([1, 40]))
    with pytest.raises(InputError, match="normalise: must be batch or graph"):
        ClusterSampler(graph, partition, INDEX, normalise="layer")
