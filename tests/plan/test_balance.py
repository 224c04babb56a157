"""Layers to stages: as good as trying every cut."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from gnnpar.errors import InputError
from gnnpar.plan.balance import balance_branches, balance_stages


def slowest(costs, counts):
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return max(sum(costs[a:b]) for a, b in pairwise(bounds))


def best_of_all(costs, num_stages):
    cuts = combinations(range(1, len(costs)), num_stages - 1)
    return min(slowest(costs, np.diff([0, *cut, len(costs)])) for cut in cuts)


def test_as_good_as_trying_every_cut():
    rng = np.random.default_rng(0)
    for _ in range(150):
        num_layers = int(rng.integers(1, 10))
        num_stages = int(rng.integers(1, num_layers + 1))
        costs = rng.integers(0, 6, num_layers).astype(float).tolist()
        counts = balance_stages(costs, num_stages)
        assert len(counts) == num_stages and sum(counts) == num_layers and min(counts) >= 1
        assert slowest(costs, counts) == best_of_all(costs, num_stages)


def test_known_cuts():
    assert balance_stages([1.0] * 32, 4) == (8, 8, 8, 8)
    assert balance_stages([5, 1, 1, 1, 1, 1], 2) == (1, 5)
    assert balance_stages([1, 1, 1, 9], 2) == (3, 1)
    assert balance_stages([2, 3], 1) == (2,)


def test_ties_are_broken_the_same_way():
    assert balance_stages([0.0] * 5, 3) == balance_stages([0.0] * 5, 3) == (1, 1, 3)


@pytest.mark.parametrize(
    ("costs", "num_stages", "message"),
    [
        ([1.0, 2.0], 3, "3 stages, but only 2 layers"),
        ([1.0, 2.0], 0, "at least 1"),
        ([], 1, "only 0 layers"),
        ([1.0, -2.0], 1, "layer 1 costs -2.0"),
        ([float("nan")], 1, "finite"),
    ],
)
def test_impossible_requests(costs, num_stages, message):
    with pytest.raises(InputError, match=message):
        balance_stages(costs, num_stages)


def test_a_stage_of_several_ways_takes_more_layers():
    assert balance_stages([1.0] * 9, 2, [2, 1]) == (6, 3)
    assert balance_stages([1.0] * 8, 3, [1, 2, 1]) == (2, 4, 2)
    rng = np.random.default_rng(1)
    for _ in range(60):
        num_layers = int(rng.integers(2, 9))
        num_stages = int(rng.integers(2, num_layers + 1))
        costs, ways = (
            rng.integers(0, 6, num_layers).astype(float).tolist(),
            rng.integers(1, 4, num_stages).tolist(),
        )
        cuts = combinations(range(1, num_layers), num_stages - 1)
        best = min(slowest_of(costs, np.diff([0, *cut, num_layers]), ways) for cut in cuts)
        assert slowest_of(costs, balance_stages(costs, num_stages, ways), ways) == best


def slowest_of(costs, counts, ways):
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return max(sum(costs[a:b]) / g for (a, b), g in zip(pairwise(bounds), ways, strict=True))


def test_branches_get_as_many_stages_as_is_best():
    rng = np.random.default_rng(1)
    for _ in range(100):
        sizes = rng.integers(1, 5, int(rng.integers(1, 4)))
        costs = [rng.integers(0, 6, size).astype(float).tolist() for size in sizes]
        num_stages = int(rng.integers(len(costs), sum(sizes) + 1))
        ways = rng.integers(1, 4, num_stages).tolist()
        counts = balance_branches(costs, num_stages, ways)
        assert [sum(split) for split in counts] == sizes.tolist()
        assert sum(map(len, counts)) == num_stages and min(min(split) for split in counts) >= 1
        flat = [cost for branch in costs for cost in branch]
        ends = set(np.cumsum(sizes).tolist())
        cuts = combinations(range(1, len(flat)), num_stages - 1)
        deals = [np.diff([0, *cut, len(flat)]) for cut in cuts if ends <= {*cut, len(flat)}]
        best = min(slowest_of(flat, deal, ways) for deal in deals)
        assert slowest_of(flat, [n for split in counts for n in split], ways) == best


def test_stages_go_where_the_work_is():
    assert balance_branches([[1.0] * 6, [1.0] * 2], 4) == [(2, 2, 2), (2,)]
    assert balance_branches([[9.0], [1.0] * 4], 4) == [(1,), balance_stages([1.0] * 4, 3)]
    assert balance_branches([[1.0] * 3], 2) == [balance_stages([1.0] * 3, 2)]


@pytest.mark.parametrize("num_stages", [1, 5])
def test_every_branch_needs_a_stage_and_every_stage_a_layer(num_stages):
    with pytest.raises(InputError, match=f"{num_stages} stages for 2 branches of 4 layers in all"):
        balance_branches([[1.0] * 3, [1.0]], num_stages)
