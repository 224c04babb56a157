import torch

from gnnpar.data.splits import random_split


def total(masks):
    return masks["train_mask"].int() + masks["val_mask"].int() + masks["test_mask"].int()


def test_every_labelled_vertex_is_in_one_part_and_no_other_is():
    y = torch.randint(-1, 4, (200,), generator=torch.Generator().manual_seed(0))
    masks = random_split(y, 3)
    assert torch.equal(total(masks), (y >= 0).int())
    for label in range(4):
        size = int((y == label).sum())
        assert abs(int(masks["train_mask"][y == label].sum()) - 0.6 * size) <= 0.5
        assert abs(int(masks["test_mask"][y == label].sum()) - 0.2 * size) <= 0.5


def test_multi_labels_are_divided_as_a_whole():
    y = torch.zeros(100, 3)
    y[:10] = float("nan")
    masks = random_split(y, 0)
    assert torch.equal(total(masks), (torch.arange(100) >= 10).int())
    assert [int(mask.sum()) for mask in masks.values()] == [54, 18, 18]


def test_seeds_and_global_state():
    y = torch.arange(50) % 5
    torch.manual_seed(1)
    first = random_split(y, 0)["train_mask"]
    torch.manual_seed(2)
    assert torch.equal(first, random_split(y, 0)["train_mask"])
    assert not torch.equal(first, random_split(y, 1)["train_mask"])
