"""The order of the chunks: a permutation that depends on seed, step and way alone."""

from itertools import permutations

import numpy as np
import pytest
import torch

from gnnpar.batch import chunk_order


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
