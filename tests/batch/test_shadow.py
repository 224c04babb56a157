"""ShaDow: one induced ego subgraph a seed, within its depth and budget."""

from itertools import pairwise

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import KEY, assert_batch, assert_rate, keys, same_batch

from gnnpar.batch import ShadowSampler
from gnnpar.errors import InputError

SEEDS = torch.tensor([11, 5, 0, 6, 39, 11])


def egos(batch):
    """The vertices of every ego, which end where the next seed stands."""
    ends = [*batch.targets.tolist(), batch.vertices.numel()]
    return [batch.vertices[a:b] for a, b in pairwise(ends)]


def within(graph, seed, depth):
    """`[N]` bool: vertices from which at most `depth` edges lead to the seed."""
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[seed] = True
    for _ in range(depth):
        near[graph.indices[near[graph.destinations]].long()] = True
    return near


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"edge_features": 2}, {"loops": True}])
@pytest.mark.parametrize(("depth", "budget"), [(1, 3), (2, 2), (3, -1)])
@pytest.mark.parametrize("directed", [True, False])
def test_egos_are_induced_and_apart(directed, depth, budget, options):
    graph = tiny_graph(directed, **options)
    for key in keys(5):
        batch = ShadowSampler(graph, depth, budget).sample(SEEDS, key)
        assert_batch(graph, batch, whole_degrees=False)
        assert torch.equal(batch.target_vertices, SEEDS)
        (block,), (edges,) = batch.blocks, batch.edge_ids
        assert block.num_rows == block.num_columns
        found, ego_of = [], torch.empty(batch.vertices.numel(), dtype=torch.int64)
        for number, ego in enumerate(egos(batch)):
            assert ego.unique().numel() == ego.numel()
            near = within(graph, SEEDS[number], depth)
            assert near[ego].all() and (budget >= 0 or near.sum() == ego.numel())
            assert budget < 0 or ego.numel() <= sum(budget**hop for hop in range(depth + 1))
            inside = torch.isin(torch.arange(40), ego)
            found.append((inside[graph.destinations] & inside[graph.indices.long()]).nonzero()[:, 0])
            start = int(batch.targets[number])
            ego_of[start : start + ego.numel()] = number
        assert torch.equal(ego_of[block.rows], ego_of[block.columns])
        for number, expected in enumerate(found):
            assert torch.equal(edges[ego_of[block.rows] == number].sort().values, expected)
        if graph.edge_weight is None:
            assert torch.equal(block.in_degree, torch.bincount(block.rows, minlength=ego_of.numel()))
            assert torch.equal(block.out_degree, torch.bincount(block.columns, minlength=ego_of.numel()))
            assert block.edge_weight is None
        else:
            assert torch.equal(block.edge_weight, graph.edge_weight[edges])


def test_neighbours_of_the_seed_come_up_alike():
    graph, count, budget = tiny_graph(False), 2000, 2
    seed = int((graph.in_degree == 5).nonzero()[0])
    times = torch.zeros(40, dtype=torch.float64)
    for key in keys(count):
        times[ShadowSampler(graph, 1, budget).sample(torch.tensor([seed]), key).vertices] += 1
    neighbours = graph.indices[graph.indptr[seed] : graph.indptr[seed + 1]].long()
    rate = torch.zeros(40, dtype=torch.float64)
    rate[neighbours], rate[seed] = budget / 5, 1
    assert_rate(times / count, rate, rate * (1 - rate), count)


def test_an_ego_follows_from_its_seed_and_the_key(graph):
    sampler = ShadowSampler(graph, 2, 2)
    first = sampler.sample(SEEDS, KEY)
    assert same_batch(sampler.sample(SEEDS, KEY), first)
    alone = [sampler.sample(seed[None], KEY).vertices for seed in SEEDS]
    assert all(map(torch.equal, egos(first), alone))
    assert not same_batch(sampler.sample(SEEDS, keys(1)[0]), first)


def test_no_seeds_and_an_isolated_one(graph):
    empty = ShadowSampler(graph, 2, 2).sample(SEEDS[:0], KEY)
    assert empty.vertices.numel() == empty.targets.numel() == empty.blocks[0].num_edges == 0
    alone = ShadowSampler(graph, 2, 2).sample(torch.tensor([5]), KEY)
    assert alone.vertices.tolist() == [5] and alone.blocks[0].num_edges == 0


def test_bad_input(graph):
    with pytest.raises(InputError) as error:
        ShadowSampler(graph, 0, -3)
    assert [fault.split(":")[0] for fault in error.value.faults] == ["depth", "budget"]
    with pytest.raises(InputError, match="seeds: 1 of 1 outside"):
        ShadowSampler(graph, 1, 1).sample(torch.tensor([-1]), KEY)
