"""GraphSAINT: what is drawn how often, and loss and aggregation unbiased."""

from collections import Counter
from itertools import product

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import KEY, assert_batch, assert_rate, dense, keys, same_batch

from gnnpar.batch import BatchKey, Linear, SaintSampler, edge_draws, node_draws, walk_draws
from gnnpar.batch.saint import inclusion
from gnnpar.errors import InputError

INDEX = torch.tensor([0, 3, 7, 17, 18, 19, 30])
KINDS = {"node": node_draws, "edge": edge_draws, "walk": lambda graph: walk_draws(graph, 2, rounds=4000)}


@pytest.fixture(scope="module", params=[*product(KINDS, [False, True])], ids=str)
def draws(request):
    """Every kind on a directed and an undirected graph with loops."""
    kind, directed = request.param
    return KINDS[kind](tiny_graph(directed, loops=True))


def both(draws, count):
    """`[E]`: the probability that `count` draws reach both ends of an edge."""
    source, destination = draws.graph.edge_index
    either = draws.visit[source] + draws.visit[destination] - draws.pair
    return sum(inclusion(draws.visit[v], count) for v in (source, destination)) - inclusion(either, count)


@pytest.mark.parametrize("count", [1, 6])
def test_vertices_and_edges_are_there_as_often_as_the_formulas_say(draws, count):
    graph, trials = draws.graph, 1200
    sampler = SaintSampler(draws, INDEX, count)
    vertices, edges = torch.zeros(40).double(), torch.zeros(graph.num_edges).double()
    for key in keys(trials):
        batch = sampler.sample(torch.arange(count), key)
        vertices[batch.vertices] += 1
        edges[batch.edge_ids[0]] += 1
    for found, rate in (
        (vertices, inclusion(draws.visit, count)),
        (edges, both(draws, count)),
    ):
        assert_rate(found / trials, rate, (rate * (1 - rate)).clamp(min=0), trials)


def test_aggregation_is_unbiased_where_a_vertex_is_there(draws):
    graph, count, trials = draws.graph, 8, 1200
    sampler, total = SaintSampler(draws, INDEX, count), torch.zeros(40, 40).double()
    for key in keys(trials):
        batch = sampler.sample(torch.arange(count), key)
        total[batch.vertices] += dense(graph, batch.blocks[0], batch.vertices)
    # An edge's weight is p(v) / p(u, v): its mean over all batches is p(v), over those that have v it is 1.
    there, pair = inclusion(draws.visit, count)[graph.destinations], both(draws, count)
    found = (total / trials)[graph.destinations, graph.indices.long()]
    assert_rate(found, there, (there / pair) ** 2 * pair * (1 - pair), trials)


def test_loss_is_unbiased(draws):
    index = INDEX[draws.visit[INDEX] > 0]
    losses, trials = torch.linspace(1, 3, 40).double(), 1000
    sampler = SaintSampler(draws, index, 8)
    for count in (8, 3):  # also a last batch of fewer draws
        sums = []
        for key in keys(trials):
            batch = sampler.sample(torch.arange(count), key)
            assert torch.equal(batch.target_vertices, batch.vertices[torch.isin(batch.vertices, index)])
            sums.append((batch.loss_weight * losses[batch.target_vertices]).sum())
        sums = torch.stack(sums)
        assert_rate(sums.mean(), losses[index].mean(), sums.var(), trials)


def test_batches_are_induced_subgraphs(draws):
    for key in keys(20):
        batch = SaintSampler(draws, INDEX, 12).sample(torch.arange(12), key)
        assert_batch(draws.graph, batch)
        inside = torch.isin(torch.arange(40), batch.vertices)
        expected = inside[draws.graph.destinations] & inside[draws.graph.indices.long()]
        assert torch.equal(batch.edge_ids[0].sort().values, expected.nonzero()[:, 0])


@pytest.mark.parametrize("options", [{"weighted": True}, {"edge_features": 2}])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_features_follow_the_edges(kind, options):
    graph = tiny_graph(**options)
    draws = KINDS[kind](graph) if kind != "walk" else walk_draws(graph, 2)
    batch = SaintSampler(draws, INDEX, 20).sample(torch.arange(20), KEY)
    assert_batch(graph, batch)
    if graph.edge_weight is not None:
        plain = SaintSampler(
            type(draws)(graph.replace(edge_weight=None), draws.reach, draws.visit, draws.pair), INDEX, 20
        ).sample(torch.arange(20), KEY)
        expected = plain.blocks[0].edge_weight * graph.edge_weight[batch.edge_ids[0]]
        assert torch.equal(batch.blocks[0].edge_weight, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_node_probabilities_are_squared_columns(weighted):
    graph = tiny_graph(weighted=weighted)
    matrix = torch.eye(40).double()
    matrix[graph.destinations, graph.indices.long()] += graph.edge_weight if weighted else 1.0
    matrix /= matrix.sum(1, keepdim=True)
    expected = (matrix**2).sum(0)
    assert torch.allclose(node_draws(graph).visit, expected / expected.sum())
    by_column = node_draws(graph, Linear("sum", False)).visit
    assert by_column[5] == 0 and torch.isclose(by_column.sum(), torch.tensor(1.0).double())


def test_edge_probabilities_are_those_of_the_paper():
    graph = tiny_graph(False)
    draws, inverse = edge_draws(graph), 1 / graph.in_degree.double()
    chance = inverse[graph.indices.long()] + inverse[graph.destinations]
    assert torch.allclose(draws.pair, 2 * chance / chance.sum())  # an edge and its reverse
    assert draws.visit[5] == 0


@pytest.mark.parametrize("directed", [False, True])
def test_walk_probabilities_are_those_of_all_walks(directed):
    graph, rounds = tiny_graph(directed), 4000
    visit, pair = torch.zeros(40).double(), Counter()
    rows = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() or [v] for v in range(40)]
    for a in range(40):
        for b, c in [(step, last) for step in rows[a] for last in rows[step]]:
            chance = 1 / (40 * len(rows[a]) * len(rows[b]))
            for vertex in {a, b, c}:
                visit[vertex] += chance
            for ends in product({a, b, c}, repeat=2):
                pair[ends] += chance
    edges = torch.tensor([pair[ends] for ends in zip(*graph.edge_index.tolist(), strict=True)]).double()
    draws = walk_draws(graph, 2, rounds=rounds)
    assert_rate(draws.visit, visit, visit * (1 - visit), 40 * rounds)
    assert_rate(draws.pair, edges, edges * (1 - edges), 40 * rounds)
    assert draws.visit.min() >= 1 / 40 and draws.pair.min() > 0
    few = walk_draws(graph, 2, rounds=1)  # no weight is ever infinite
    assert few.visit.min() >= 1 / 40 and few.pair.min() > 0


def test_a_draw_follows_from_its_number_and_key(draws):
    sampler = SaintSampler(draws, INDEX, 30)
    numbers = torch.tensor([3, 29, 11, 4, 8])
    first = sampler.sample(numbers, KEY)
    torch.manual_seed(3)
    assert same_batch(sampler.sample(numbers.flip(0), KEY), first)
    assert not same_batch(sampler.sample(numbers, BatchKey(7, 3, 1)), first)
    parts = [sampler.sample(part, KEY).vertices for part in numbers.split(2)]
    assert torch.equal(torch.cat(parts).unique(), first.vertices)


def test_no_draws(draws):
    batch = SaintSampler(draws, INDEX, 30).sample(torch.tensor([], dtype=torch.int64), KEY)
    assert batch.vertices.numel() == batch.targets.numel() == batch.loss_weight.numel() == 0


def test_bad_input(graph):
    draws = node_draws(graph)
    with pytest.raises(InputError, match="num_draws: must be positive"):
        SaintSampler(draws, INDEX, 0)
    with pytest.raises(InputError, match="index: 1 of 1 outside"):
        SaintSampler(draws, torch.tensor([-1]), 3)
    with pytest.raises(InputError, match="draws: 1 of 1 outside"):
        SaintSampler(draws, INDEX, 3).sample(torch.tensor([3]), KEY)
    with pytest.raises(InputError, match="2 occurs more than once"):
        SaintSampler(draws, INDEX, 3).sample(torch.tensor([2, 2]), KEY)
    with pytest.raises(InputError) as error:
        walk_draws(graph, 0, rounds=-1)
    assert [fault.split(":")[0] for fault in error.value.faults] == ["length", "rounds"]
    bare = graph.replace(indptr=torch.zeros_like(graph.indptr), indices=graph.indices[:0])
    with pytest.raises(InputError, match="no edges"):
        edge_draws(bare)
    assert torch.allclose(node_draws(bare).visit, torch.full((40,), 1 / 40).double())
    with pytest.raises(InputError, match="no vertex is read"):
        node_draws(bare, Linear("mean", False))
