"""Neighbour sampling: sizes, distinctness, probabilities of edges, unbiased weights."""

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import KEY, assert_batch, assert_rate, dense, keys, same_batch

from gnnpar.batch import BatchKey, NeighbourSampler
from gnnpar.errors import InputError

KINDS = {"distinct": {}, "replace": {"replace": True}, "labor": {"labor": True}}
SEEDS = torch.tensor([11, 5, 0, 6, 39, 1])  # 5 is isolated, 6 of a directed graph has no in-edges


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"edge_features": 2}, {"loops": True}])
@pytest.mark.parametrize("directed", [True, False])
def test_blocks_hold_edges_of_the_graph(kind, options, directed):
    graph = tiny_graph(directed, **options)
    for key in keys(20):
        batch = NeighbourSampler(graph, [3, 2, -1], **kind).sample(SEEDS, key)
        assert_batch(graph, batch)
        assert len(batch.blocks) == 3 and batch.block(2) is batch.blocks[2]
        assert torch.equal(batch.target_vertices, SEEDS)
        assert batch.vertices.unique().numel() == batch.vertices.numel()
        assert batch.blocks[-1].num_rows == SEEDS.numel()


def test_fan_outs_bound_the_edges_hop_by_hop(graph):
    batch = NeighbourSampler(graph, [4, 2, -1]).sample(SEEDS, KEY)
    for fanout, block, edges in zip([4, 2, 10**9], batch.blocks[::-1], batch.edge_ids[::-1], strict=True):
        degree = graph.in_degree[batch.vertices[: block.num_rows]]
        assert torch.equal(block.indptr.diff(), degree.clamp(max=fanout))
        assert edges.unique().numel() == edges.numel()


def test_with_replacement_every_row_with_edges_gets_all_its_draws(graph):
    batch = NeighbourSampler(graph, [7], replace=True).sample(torch.arange(40), KEY)
    degree = graph.in_degree
    assert torch.equal(batch.blocks[0].indptr.diff(), torch.where(degree > 0, 7, 0))
    assert batch.edge_ids[0].unique().numel() < batch.edge_ids[0].numel()


@pytest.mark.parametrize("weighted", [False, True])
def test_all_neighbours_are_the_graph_itself(kind, weighted):
    graph = tiny_graph(weighted=weighted)
    batch = NeighbourSampler(graph, [-1, -1], **kind).sample(torch.arange(40), KEY)
    for block, edges in zip(batch.blocks, batch.edge_ids, strict=True):
        assert torch.equal(block.indptr, graph.indptr) and torch.equal(edges, torch.arange(graph.num_edges))
        assert block.edge_weight is None or torch.equal(block.edge_weight, graph.edge_weight)


@pytest.mark.parametrize("hop", [0, 1])
def test_edges_are_drawn_as_often_as_their_formula_says(kind, hop):
    graph, fanout, count = tiny_graph(False), 3, 2500
    sampler = NeighbourSampler(graph, [-1] * hop + [fanout], **kind)
    times = torch.zeros(graph.num_edges, dtype=torch.float64)
    for key in keys(count):
        times += torch.bincount(sampler.sample(torch.arange(40), key).edge_ids[0], minlength=graph.num_edges)
    degree = graph.in_degree[graph.destinations].double()
    rate = fanout / degree if sampler.replace else (fanout / degree).clamp(max=1)
    variance = rate * (1 - 1 / degree) if sampler.replace else rate * (1 - rate)
    assert_rate(times / count, rate, variance, count)


def test_all_pairs_of_a_row_come_up_alike():
    graph, count = tiny_graph(False), 4000
    row = int((graph.in_degree == 6).nonzero()[0])
    first, fanout = int(graph.indptr[row]), 3
    sampler = NeighbourSampler(graph, [fanout])
    together = torch.zeros(6, 6, dtype=torch.float64)
    for key in keys(count):
        picked = sampler.sample(torch.tensor([row]), key).edge_ids[0] - first
        together[picked[:, None], picked[None, :]] += 1
    chance = fanout * (fanout - 1) / (6 * 5)
    pairs = together[~torch.eye(6, dtype=torch.bool)] / count
    assert_rate(pairs, torch.full_like(pairs, chance), torch.full_like(pairs, chance * (1 - chance)), count)


@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_aggregation_is_unbiased(kind, weighted):
    graph, fanout, count = tiny_graph(weighted=weighted), 2, 2500
    sampler = NeighbourSampler(graph, [fanout], **kind)
    total = torch.zeros(40, 40, dtype=torch.float64)
    for key in keys(count):
        batch = sampler.sample(torch.arange(40), key)
        total += dense(graph, batch.blocks[0], batch.vertices)
    full = torch.zeros(40, 40, dtype=torch.float64)
    full[graph.destinations, graph.indices.long()] = graph.edge_weight if weighted else 1.0
    rate = (fanout / graph.in_degree.clamp(min=1).double())[:, None].expand_as(full)
    if not sampler.replace:
        rate = rate.clamp(max=1)
        assert_rate(total / count, full, full**2 * (1 - rate) / rate, count)
    else:
        assert_rate(total / count, full, full**2 / rate, count)


def test_the_mean_is_that_of_the_sampled_neighbours(graph):
    batch = NeighbourSampler(graph, [2]).sample(torch.arange(40), KEY)
    block = batch.blocks[0]
    by_degree = dense(graph, block, batch.vertices) / graph.in_degree.clamp(min=1)[:, None]
    has_edges = graph.in_degree > 0
    assert torch.allclose(by_degree.sum(1)[has_edges], torch.ones(int(has_edges.sum())).double(), rtol=1e-6)


def test_labor_draws_once_a_source():
    graph = tiny_graph(False)
    plain, labor = NeighbourSampler(graph, [2]), NeighbourSampler(graph, [2], labor=True)
    reached = {plain: 0, labor: 0}
    rows = graph.destinations[graph.in_degree[graph.destinations] == 5].unique()
    for key in keys(300):
        taken = torch.zeros(40, 40, dtype=torch.bool)
        for sampler in (plain, labor):
            batch = sampler.sample(rows, key)
            reached[sampler] += batch.vertices.numel()
        taken[batch.vertices[batch.blocks[0].rows], batch.vertices[batch.blocks[0].columns]] = True
        # Rows of one degree have one bound, so a source is taken by all of them that it leads to, or by none.
        for source in range(40):
            edges = graph.destinations[graph.indices == source]
            assert taken[edges[torch.isin(edges, rows)], source].unique().numel() <= 1
    assert reached[labor] < reached[plain]


def test_a_batch_follows_from_its_key_alone(kind, graph):
    sampler = NeighbourSampler(graph, [3, 3], **kind)
    first = sampler.sample(SEEDS, KEY)
    torch.manual_seed(3)
    sampler.sample(torch.arange(20), BatchKey(0, 0, 0))
    assert same_batch(sampler.sample(SEEDS, KEY), first)
    assert same_batch(NeighbourSampler(graph, (3, 3), **kind).sample(SEEDS.int(), KEY), first)
    for other in (BatchKey(8, 3, 2), BatchKey(7, 4, 2), BatchKey(7, 3, 3)):
        assert not same_batch(sampler.sample(SEEDS, other), first)


def test_hops_draw_afresh():
    graph = tiny_graph(False)
    batch = NeighbourSampler(graph, [2, 2]).sample(torch.arange(40), KEY)
    assert not torch.equal(batch.edge_ids[0], batch.edge_ids[1])


def test_renumbered_vertices_keep_their_ids(graph):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    renumbered = graph.permute(order)
    assert_batch(renumbered, NeighbourSampler(renumbered, [3, 2]).sample(SEEDS, KEY))


def test_no_seeds_and_repeated_seeds(kind, graph):
    sampler = NeighbourSampler(graph, [3, 2], **kind)
    empty = sampler.sample(SEEDS[:0], KEY)
    assert_batch(graph, empty)
    assert empty.vertices.numel() == empty.targets.numel() == 0
    twice = sampler.sample(torch.tensor([3, 8, 3]), KEY)
    assert_batch(graph, twice)
    rows = dense(graph, twice.blocks[-1], twice.vertices)
    assert torch.equal(rows[0], rows[2])


def test_weights_have_the_type_of_the_features():
    for dtype in (torch.float32, torch.float64):
        batch = NeighbourSampler(tiny_graph(dtype=dtype), [2]).sample(SEEDS, KEY)
        assert batch.blocks[0].edge_weight.dtype == dtype


def test_bad_input_names_all_faults(graph):
    with pytest.raises(InputError) as error:
        NeighbourSampler(graph, [5, -2, 0, 2.5], replace=True, labor=True)
    assert [fault.split(":")[0] for fault in error.value.faults] == [
        "fanouts[1]",
        "fanouts[2]",
        "fanouts[3]",
        "labor",
    ]
    for fanouts in ([], 5, "15"):
        with pytest.raises(InputError, match="fanouts: must be a list"):
            NeighbourSampler(graph, fanouts)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([3, 40, -1], "seeds: 2 of 3 outside 0..39, the first at position 1: 40"),
        ([0.5], "integers"),
        ([[1, 2]], "integers"),
        ([True], "integers"),
    ],
)
def test_bad_seeds_are_refused_and_the_next_batch_is_right(graph, seeds, message):
    sampler = NeighbourSampler(graph, [3, 2])
    expected = NeighbourSampler(graph, [3, 2]).sample(SEEDS, KEY)
    with pytest.raises(InputError, match=message):
        sampler.sample(torch.tensor(seeds), KEY)
    assert same_batch(sampler.sample(SEEDS, KEY), expected)
