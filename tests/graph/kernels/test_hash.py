"""The dropout hash: that the compiled loops compute its definition, and that its bits look independent."""

import pytest
import torch

from gnnpar.graph.kernels import DropoutKey, drop, edge_keep_mask, keep_mask

KEY = DropoutKey(seed=3, step=1, layer=4, site=0)
IDS = [
    torch.arange(5000),
    torch.arange(5000) * 2**33 + 7,
    torch.randint(0, 2**62, (5000,), generator=torch.Generator().manual_seed(0)),
]


@pytest.mark.parametrize("ids", IDS, ids=["small", "beyond-32-bits", "random"])
@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loop_computes_the_definition(ids, p, dtype):
    x = torch.ones(ids.numel(), 19, dtype=dtype)
    out = drop(x, ids, KEY, p, torch.empty_like(x), backend="numba")
    assert torch.equal(out != 0, keep_mask(KEY, ids, 19, p))


def test_the_definition_is_what_it_was():
    """Masks are part of a run's reproducibility: another hash is a change that users must be told of."""
    mask = keep_mask(DropoutKey(1, 2, 3, 4), torch.tensor([0, 1, 2**40]), 16, 0.5)
    assert ["".join("01"[int(bit)] for bit in row) for row in mask] == [
        "1010111101111101",
        "0100101000001110",
        "0100101110010000",
    ]


def test_edges_are_keyed_by_both_ends():
    src, dst = torch.randint(0, 10**6, (2, 3000), generator=torch.Generator().manual_seed(1))
    mask = edge_keep_mask(KEY, dst, src, 4, 0.5, backend="torch")
    assert torch.equal(mask, edge_keep_mask(KEY, dst, src, 4, 0.5, backend="numba"))
    assert correlation(mask, edge_keep_mask(KEY, src, dst, 4, 0.5)) < 4
    assert correlation(mask, edge_keep_mask(KEY, dst, src + 1, 4, 0.5)) < 4
    assert correlation(mask, edge_keep_mask(KEY, dst + 1, src, 4, 0.5)) < 4


def test_mask_of_a_row_does_not_depend_on_its_company():
    ids = IDS[2]
    order = torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(2))
    whole = keep_mask(KEY, ids, 64, 0.3)
    assert torch.equal(keep_mask(KEY, ids[order], 64, 0.3), whole[order])
    assert torch.equal(keep_mask(KEY, ids[100:200], 64, 0.3), whole[100:200])
    assert torch.equal(keep_mask(KEY, ids, 10, 0.3), whole[:, :10])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate(p):
    mask = keep_mask(KEY, torch.arange(20000), 128, p)
    deviation = (p * (1 - p)) ** 0.5
    assert abs(mask.double().mean() - (1 - p)) < 4 * deviation / mask.numel() ** 0.5
    for axis in (0, 1):  # sums of rows and of columns vary as sums of independent bits do
        total = mask.double().sum(axis)
        excess = (total - (1 - p) * mask.shape[axis]).square().mean() / (p * (1 - p) * mask.shape[axis])
        assert abs(excess - 1) < 5 * (2 / total.numel()) ** 0.5


def correlation(a, b, p=0.5):
    """Of two masks, in standard deviations from none."""
    centred = (a.double() - (1 - p)) * (b.double() - (1 - p))
    return abs(centred.sum()) / (p * (1 - p) * a.numel() ** 0.5)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("field", ["seed", "step", "layer", "site"])
@pytest.mark.parametrize("distance", [1, 2, 2**16, 2**40])
def test_keys_draw_independent_masks(p, field, distance):
    fields = {"seed": 3, "step": 1, "layer": 4, "site": 0}
    ids = torch.arange(5000)
    one = keep_mask(DropoutKey(**fields), ids, 64, p)
    other = keep_mask(DropoutKey(**fields | {field: fields[field] + distance}), ids, 64, p)
    assert correlation(one, other, p) < 4


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("lag", [1, 2, 16, 63])
def test_neighbouring_rows_and_columns_are_independent(p, lag):
    mask = keep_mask(KEY, torch.arange(20000), 128, p)
    assert correlation(mask[lag:], mask[:-lag], p) < 4
    assert correlation(mask[:, lag:], mask[:, :-lag], p) < 4
    assert correlation(mask[lag:, lag:], mask[:-lag, :-lag], p) < 4


def test_all_pairs_of_columns_are_independent():
    mask = keep_mask(KEY, torch.arange(20000), 128, 0.5).double() * 2 - 1
    pairs = (mask.T @ mask / 20000**0.5)[torch.ones(128, 128).triu(1) > 0]
    assert pairs.abs().max() < 5
    assert abs(pairs.var() - 1) < 5 * (2 / pairs.numel()) ** 0.5


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_probabilities_outside_are_refused(p):
    with pytest.raises(ValueError, match="probability"):
        keep_mask(KEY, torch.arange(3), 4, p)
