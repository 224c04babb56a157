"""The order of the chunks: a permutation that depends on seed, step and way alone."""

from itertools import permutations

import numpy as np
import pytest
import torch

from gnnpar.batch import chunk_order, slot_order


@pytest.mark.parametrize("num_chunks", [1, 2, 7, 64])
def test_is_a_permutation_of_plain_integers(num_chunks):
    for step in range(5):
        order = chunk_order(num_chunks, seed=3, step=step)
        assert sorted(order) == list(range(num_chunks))
        assert all(type(c) is int for c in order)


def test_depends_on_its_arguments_alone():
    before = chunk_order(16, 5, 7, 1)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the state that must not matter
    assert chunk_order(16, 5, 7, 1) == before


def test_seed_step_and_way_each_change_it():
    orders = {chunk_order(16, seed, step, way) for seed in range(3) for step in range(4) for way in range(3)}
    assert len(orders) == 36


def test_all_orders_come_up_about_equally_often():
    counts = dict.fromkeys(permutations(range(3)), 0)
    for step in range(600):
        counts[chunk_order(3, 0, step)] += 1
    assert len(counts) == 6  # and no other tuple
    assert min(counts.values()) > 60 and max(counts.values()) < 150


def test_far_steps_and_large_seeds_are_orders_of_their_own():
    assert sorted(chunk_order(8, 2**40, 2**40)) == list(range(8))
    assert chunk_order(8, 2**40, 2**40) != chunk_order(8, 2**40, 2**40 + 1)


def test_without_shuffling_they_run_as_they_are_numbered():
    assert chunk_order(5, seed=9, step=4, shuffle=False) == (0, 1, 2, 3, 4)


def test_slots_of_one_chunk_are_in_the_order_of_chunks():
    assert slot_order(7, 1, 3, 5) == chunk_order(7, 3, 5)
    interleaved = zip(chunk_order(4, 3, 5, 0), chunk_order(4, 3, 5, 1), strict=True)
    assert slot_order(4, 2, 3, 5) == tuple(c for a, b in interleaved for c in (a, 4 + b))


@pytest.mark.parametrize("joined", [1, 2, 3])
def test_joined_chunks_are_drawn_from_all_chunks_of_their_way(joined):
    """Two ways, four slots: way w has chunks w · 4 · joined and on, `joined` places next to each other."""
    pairs = set()
    for epoch in range(80):
        order = slot_order(4, 2, 0, epoch, joined=joined)
        assert sorted(order) == list(range(8 * joined))
        for at in range(0, len(order), 2 * joined):
            first, second = order[at : at + joined], order[at + joined : at + 2 * joined]
            assert max(first) < 4 * joined <= min(second)
            pairs |= {(a, b) for a in first for b in first if a < b}
    assert len(pairs) == (4 * joined * (4 * joined - 1) // 2 if joined > 1 else 0)  # any two may meet
