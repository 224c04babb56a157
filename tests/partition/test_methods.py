"""Every method on every kind of graph: parts cover the vertices once, none empty, balanced, repeatable."""

import importlib.util

import numpy as np
import pytest
import torch

from gnnpar.errors import InputError
from gnnpar.partition import METHODS, degree_cost, partition_graph, report
from gnnpar.partition.build import fill_empty_parts
from gnnpar.partition.child import External
from gnnpar.partition.problem import undirected
from gnnpar.partition.range import split
from tests.partition.graphs import cut_of, from_edges, grid, planted

EXTERNAL = {name: method.library for name, method in METHODS.items() if isinstance(method, External)}


def methods(*names):
    """Parameters, skipped where the library of the extra is not installed."""
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in EXTERNAL and importlib.util.find_spec(EXTERNAL[name]) is None,
                reason=f"{EXTERNAL.get(name)} is not installed (extra: partition)",
            ),
        )
        for name in names or METHODS
    ]


def assert_valid(graph, partition, num_parts):
    assert sorted(partition.order.tolist()) == list(range(graph.num_nodes))
    assert partition.offsets[0] == 0 and partition.offsets[-1] == graph.num_nodes
    assert partition.offsets.numel() == num_parts + 1 == partition.num_parts + 1
    assert (partition.offsets.diff() > 0).all()
    assert partition.assignment.dtype == torch.int32
    for c in range(num_parts):
        members = partition.order[partition.offsets[c] : partition.offsets[c + 1]]
        assert (partition.assignment[members] == c).all()


@pytest.mark.parametrize("method", methods())
def test_parts_cover_all_vertices_balanced_and_repeatable(method):
    graph = planted()
    one = partition_graph(graph, 5, method=method, seed=3)
    again = partition_graph(graph, 5, method=method, seed=3)
    assert_valid(graph, one, 5)
    assert torch.equal(one.order, again.order) and one.fingerprint == again.fingerprint
    assert report(graph, one).vertex_balance < 1.1


@pytest.mark.parametrize("method", methods("metis", "random", "ldg", "fennel", "kahip", "mtkahypar"))
def test_another_seed_gives_another_partition(method):
    graph = planted(between=30.0)
    orders = [
        partition_graph(graph, 4, method=method, seed=seed, inner_order="none").order for seed in range(3)
    ]
    assert any(not torch.equal(orders[0], other) for other in orders[1:])


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize(
    ("graph", "num_parts"),
    [
        (from_edges(9, [0, 1, 2, 3, 3, 7], [1, 2, 0, 4, 5, 8]), 3),  # directed, isolated vertices
        (from_edges(40, [0] * 39, range(1, 40)), 6),  # directed star
        (from_edges(12, [], []), 5),  # no edges
        (
            from_edges(6, [0, 0, 0, 1, 1, 2], [1, 1, 0, 0, 1, 2], coalesce=False),
            4,
        ),  # duplicates and self loops
        (planted(size=5), 13),  # parts of one or two vertices
        (from_edges(4, [0, 1, 2], [1, 2, 3]), 4),  # as many parts as vertices
        (from_edges(3, [0, 1], [1, 2]), 1),
        (from_edges(1, [], []), 1),
    ],
)
def test_odd_graphs(method, graph, num_parts):
    assert_valid(graph, partition_graph(graph, num_parts, method=method), num_parts)


def test_cut_order_of_methods_on_a_planted_partition():
    graph = planted(num_groups=40, size=25, between=3.0)
    cuts = {
        method: cut_of(graph, partition_graph(graph, 8, method=method))
        for method in ("metis", "ldg", "fennel", "random", "range")
    }
    assert max(cuts["metis"], cuts["ldg"], cuts["fennel"]) < 0.5 * min(cuts["random"], cuts["range"])


def test_cut_order_of_methods_on_a_grid():
    graph = grid(30)
    cuts = {m: cut_of(graph, partition_graph(graph, 9, method=m)) for m in ("metis", "ldg", "random")}
    assert cuts["metis"] < 0.8 * cuts["ldg"] < 0.5 * cuts["random"]


def test_metis_finds_planted_groups():
    graph = planted(num_groups=8, size=100)
    assert cut_of(graph, partition_graph(graph, 8)) < 0.1 * graph.num_edges


@pytest.mark.parametrize("method", methods())
def test_costs_are_balanced(method):
    """A power-law graph: the parts' costs are equal although their vertices are not."""
    rng = np.random.default_rng(0)
    n = 400
    hubs = (n * rng.random(3000) ** 4).astype(int)
    graph = from_edges(n, rng.integers(0, n, 3000), hubs).symmetrize()
    cost = degree_cost(graph, 1.0, 1.0)
    by_cost = report(graph, partition_graph(graph, 4, method=method, vertex_cost=cost), cost)
    by_vertex = report(graph, partition_graph(graph, 4, method=method), cost)
    assert by_cost.cost_balance < 1.12
    if method in ("metis", "range", "kahip", "mtkahypar"):
        assert by_cost.cost_balance < by_vertex.cost_balance - 0.1
        assert by_cost.vertex_balance > by_vertex.vertex_balance


def test_structure_is_symmetric_simple_and_counts_wrap_nowhere():
    src = [0] * 256 + [1, 2, 2]
    dst = [1] * 256 + [2, 2, 0]
    structure = undirected(from_edges(4, src, dst, coalesce=False)).toarray()
    expected = np.zeros((4, 4))
    for u, v in ((0, 1), (1, 2), (0, 2)):
        expected[u, v] = expected[v, u] = 1
    assert np.array_equal(structure, expected)


def test_split_never_leaves_a_piece_empty():
    assert split(np.array([100, 1, 1, 1]), 4).tolist() == [0, 1, 2, 3]
    assert split(np.array([1, 1, 1, 100]), 3).tolist() == [0, 0, 1, 2]
    assert split(np.ones(10, int), 3).tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 30))
        k = int(rng.integers(1, n + 1))
        part = split((rng.pareto(0.5, n) * 10).astype(int) + 1, k)
        assert part.size == n and set(part.tolist()) == set(range(k)) and (np.diff(part) >= 0).all()


def test_empty_parts_are_filled_from_the_largest():
    part = fill_empty_parts(np.array([0, 0, 0, 0, 0, 0, 2, 2], dtype=np.int32), 4)
    assert part.tolist() == [0, 0, 3, 3, 1, 1, 2, 2]
    assert fill_empty_parts(np.array([1, 1, 1]), 3).tolist() == [1, 2, 0]
    assert np.bincount(fill_empty_parts(np.array([0] * 9 + [1]), 3, least=3)).tolist() == [4, 3, 3]


@pytest.mark.parametrize("method", methods("metis", "ldg", "random", "range"))
@pytest.mark.parametrize(("num_groups", "width"), [(2, 3), (4, 1), (1, 4)])
def test_parts_lie_within_groups_that_were_cut_first(method, num_groups, width):
    graph, parts = planted(), num_groups * width
    found = partition_graph(graph, parts, method=method, num_groups=num_groups)
    assert_valid(graph, found, parts)
    assert report(graph, found).vertex_balance < 1.2
    groups = partition_graph(graph, num_groups, method=method)
    assert torch.equal(found.assignment // width, groups.assignment)


def test_every_group_has_room_for_its_parts():
    graph = from_edges(12, [0] * 8 + [9], [*range(1, 9), 10])
    for method in ("metis", "ldg", "random"):
        assert_valid(graph, partition_graph(graph, 12, method=method, num_groups=3), 12)
    with pytest.raises(InputError, match="num_groups: must divide num_parts=12, got 5"):
        partition_graph(graph, 12, num_groups=5)


def test_all_faults_of_a_request_at_once():
    with pytest.raises(InputError) as error:
        partition_graph(planted(size=5), 21, method="mettis", seed=-1, inner_order="rmc", vertex_cost=[1.0])
    faults = error.value.faults
    assert len(faults) == 5
    assert "21 parts, but tiny has only 20 vertices" in faults[0]
    assert "did you mean 'metis'?" in faults[1]
    assert "did you mean 'rcm'?" in faults[2]
    with pytest.raises(InputError, match="finite"):
        partition_graph(from_edges(2, [0], [1]), 2, vertex_cost=[1.0, float("nan")])
    with pytest.raises(InputError, match="at least 1"):
        partition_graph(from_edges(2, [0], [1]), 0)


def test_a_missing_library_is_an_error_with_the_install_line():
    with pytest.raises(
        InputError, match=r"no_such_library is not installed: pip install 'gnnpar\[partition\]'"
    ):
        External("metis", "no_such_library", "[partition]").require()


def test_streaming_is_the_same_without_numba(monkeypatch):
    from gnnpar.partition import stream

    graph = planted(num_groups=3, size=20)
    compiled = partition_graph(graph, 3, method="fennel")
    monkeypatch.setattr(stream, "_compiled", lambda: stream._stream)
    assert torch.equal(partition_graph(graph, 3, method="fennel").order, compiled.order)
