"""FastGCN and LADIES: who is drawn with which probability, and weights that keep sums unbiased."""

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import KEY, assert_batch, assert_rate, dense, keys, same_batch

from gnnpar.batch import LayerSampler, Linear
from gnnpar.errors import InputError
from gnnpar.graph.norm import scales

SEEDS = torch.tensor([11, 5, 0, 6, 39, 1])
KINDS = ["fastgcn", "ladies"]


def adjacency(graph):
    full = torch.zeros(40, 40, dtype=torch.float64)
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    return full.index_put_((graph.destinations, graph.indices.long()), weight.double(), accumulate=True)


def matrix(graph, linear):
    """P off its self loops, dense."""
    by = scales(graph, linear, torch.float64)
    ones = torch.ones(40, dtype=torch.float64)
    r, c = (ones if s is None else s for s in (by.r, by.c))
    return r[:, None] * adjacency(graph) * c


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("linear", [Linear(), Linear("mean", False), Linear("sum", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_squared_columns_of_the_rows(kind, linear, weighted):
    graph = tiny_graph(weighted=weighted)
    vertices, q = LayerSampler(graph, [5], kind, linear=linear).probabilities(SEEDS)
    squares = matrix(graph, linear) ** 2
    expected = (squares if kind == "fastgcn" else squares[SEEDS]).sum(0)
    found = torch.zeros(40, dtype=torch.float64).index_put_((vertices,), q)
    assert torch.allclose(found, expected / expected.sum(), atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"edge_features": 2}, {"loops": True}])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_hold_all_edges_from_the_drawn_to_the_rows(kind, directed, options):
    graph = tiny_graph(directed, **options)
    sampler = LayerSampler(graph, [6, 9], kind)
    for key in keys(20):
        batch = sampler.sample(SEEDS, key)
        assert_batch(graph, batch)
        assert torch.equal(batch.target_vertices, SEEDS)
        for block, edges, size in zip(batch.blocks, batch.edge_ids, (9, 6), strict=True):
            drawn = graph.indices[edges].unique()
            assert drawn.numel() <= size
            rows = batch.vertices[: block.num_rows]
            there = torch.isin(graph.destinations, rows) & torch.isin(graph.indices, drawn)
            assert torch.equal(edges.sort().values, there.nonzero()[:, 0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_keep_the_sum_of_every_edge_unbiased(kind, weighted):
    graph, size, count = tiny_graph(weighted=weighted), 8, 2500
    sampler = LayerSampler(graph, [size], kind)
    total = torch.zeros(SEEDS.numel(), 40, dtype=torch.float64)
    for key in keys(count):
        batch = sampler.sample(SEEDS, key)
        total += dense(graph, batch.blocks[0], batch.vertices)
    vertices, q = sampler.probabilities(SEEDS)
    chance = torch.ones(40, dtype=torch.float64).index_put_((vertices,), q)
    full = adjacency(graph)[SEEDS]
    assert_rate(total / count, full, full**2 * (1 - chance) / (size * chance), count)


@pytest.mark.parametrize("kind", KINDS)
def test_second_layer_is_unbiased_given_its_rows(kind):
    graph, size, count = tiny_graph(False), 10, 1500
    sampler = LayerSampler(graph, [6, size], kind)
    miss = []
    for key in keys(count):
        batch = sampler.sample(SEEDS, key)
        rows = batch.vertices[: batch.blocks[0].num_rows]
        miss.append((dense(graph, batch.blocks[0], batch.vertices) - adjacency(graph)[rows]).sum())
    miss = torch.stack(miss)
    assert_rate(miss.mean(), torch.tensor(0.0).double(), miss.var(), count)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("linear", [Linear(), Linear("mean", False), Linear("sum", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_rows_weigh_as_much_as_those_of_the_graph(kind, linear, weighted):
    graph = tiny_graph(weighted=weighted)
    sampler = LayerSampler(graph, [10, 10], kind, linear=linear, normalise=True)
    column = scales(graph, linear, torch.float64).c
    column = torch.ones(40).double() if column is None else column
    batch = sampler.sample(SEEDS, KEY)
    for block in batch.blocks:
        rows = batch.vertices[: block.num_rows]
        found = dense(graph, block, batch.vertices) @ column
        expected = torch.where(block.indptr.diff() > 0, adjacency(graph)[rows] @ column, 0.0)
        assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_follows_from_its_key_alone(kind, graph):
    first = LayerSampler(graph, [8, 8], kind).sample(SEEDS, KEY)
    torch.manual_seed(3)
    assert same_batch(LayerSampler(graph, [8, 8], kind).sample(SEEDS, KEY), first)
    others = [LayerSampler(graph, [8, 8], kind).sample(SEEDS, key) for key in keys(3)]
    assert not any(same_batch(other, first) for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_no_seeds_and_rows_without_edges(kind, graph):
    for seeds in (SEEDS[:0], torch.tensor([5])):
        batch = LayerSampler(graph, [8, 8], kind).sample(seeds, KEY)
        assert_batch(graph, batch)
        assert torch.equal(batch.vertices, seeds) and batch.blocks[0].num_edges == 0


def test_a_graph_without_edges():
    graph = tiny_graph()
    bare = graph.replace(indptr=torch.zeros_like(graph.indptr), indices=graph.indices[:0])
    for kind in KINDS:
        batch = LayerSampler(bare, [8], kind).sample(SEEDS, KEY)
        assert torch.equal(batch.vertices, SEEDS)


def test_bad_input_names_all_faults(graph):
    with pytest.raises(InputError) as error:
        LayerSampler(graph, [5, -1], "fastgnc")
    assert [fault.split(":")[0] for fault in error.value.faults] == ["sizes[1]", "kind"]
    with pytest.raises(InputError, match="sizes: must be a list"):
        LayerSampler(graph, [])
    with pytest.raises(InputError, match="seeds: 1 of 1 outside"):
        LayerSampler(graph, [3]).sample(torch.tensor([40]), KEY)
