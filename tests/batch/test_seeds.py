"""Seeds over batches and ranks: each once, the same number of steps everywhere."""

import pytest
import torch

from gnnpar.batch import SeedBatches
from gnnpar.errors import InputError

INDEX = torch.tensor([90, 3, 17, 44, 5, 60, 61, 8, 2, 33, 71])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 13])
@pytest.mark.parametrize("size", [1, 2, 4, 11, 50])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_seed_once_in_steps_that_all_ranks_share(size, num_ranks, shuffle):
    batches = SeedBatches(INDEX, size, seed=1, num_ranks=num_ranks, shuffle=shuffle)
    ranks = [batches.epoch(2, rank) for rank in range(num_ranks)]
    assert {len(rank) for rank in ranks} == {batches.num_steps}
    seeds = torch.cat([own for rank in ranks for _, own in rank])
    assert torch.equal(seeds.sort().values, INDEX.sort().values)
    for step in zip(*ranks, strict=True):
        sizes = [own.numel() for _, own in step]
        assert max(sizes) <= size and max(sizes) - min(sizes) <= 1
    full = [sum(own.numel() for _, own in step) for step in zip(*ranks, strict=True)]
    assert all(count == size * num_ranks for count in full[:-1]) and full[-1] > 0
    keys = [key for rank in ranks for key, _ in rank]
    assert len(set(keys)) == len(keys) and {(key.seed, key.epoch) for key in keys} == {(1, 2)}


def test_a_rank_that_the_last_step_leaves_out_gets_an_empty_batch():
    last = [SeedBatches(INDEX, 2, num_ranks=5).epoch(0, rank)[-1][1].numel() for rank in range(5)]
    assert last == [1, 0, 0, 0, 0]


def test_steps_do_not_depend_on_how_many_ranks_share_them():
    one, two = SeedBatches(INDEX, 4), SeedBatches(INDEX, 2, num_ranks=2)
    for step, (_, seeds) in enumerate(one.epoch(3)):
        assert torch.equal(seeds, torch.cat([two.epoch(3, rank)[step][1] for rank in range(2)]))


def test_order_follows_from_seed_and_epoch_alone():
    first = SeedBatches(INDEX, 3, seed=4).order(1)
    torch.manual_seed(0)
    assert torch.equal(SeedBatches(INDEX, 5, seed=4, num_ranks=2).order(1), first)
    orders = {tuple(SeedBatches(INDEX, 3, seed=s).order(e).tolist()) for s in range(3) for e in range(4)}
    assert len(orders) == 12
    assert torch.equal(SeedBatches(INDEX, 3, shuffle=False).order(7), INDEX)


def test_all_orders_come_up_about_equally_often():
    counts = {}
    for epoch in range(600):
        order = tuple(SeedBatches(torch.tensor([4, 9, 2]), 1).order(epoch).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6 and min(counts.values()) > 60 and max(counts.values()) < 150


def test_no_seeds_at_all():
    batches = SeedBatches(INDEX[:0], 3, num_ranks=2)
    assert batches.num_steps == 0 and batches.epoch(0, 1) == []


def test_bad_input_names_all_faults():
    with pytest.raises(InputError) as error:
        SeedBatches(torch.tensor([1, 2, 1]), 0, num_ranks=-1)
    assert error.value.faults == (
        "index: 1 of 3 seeds are repeats of others",
        "size: must be positive, got 0",
        "num_ranks: must be positive, got -1",
    )
    with pytest.raises(InputError, match="index: must be integers"):
        SeedBatches(torch.ones(3, dtype=torch.bool), 1)
    with pytest.raises(InputError) as error:
        SeedBatches([1, 2], 2.5, num_ranks=True)
    assert error.value.faults == (
        "index: must be a tensor of integers [n], got list",
        "size: must be a whole number, got 2.5",
        "num_ranks: must be a whole number, got True",
    )
    with pytest.raises(InputError, match=r"rank: must be in 0\.\.1, got 2"):
        SeedBatches(torch.arange(3), 1, num_ranks=2).epoch(0, 2)
