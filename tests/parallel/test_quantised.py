"""Rows rounded to a few bits: the bytes of the closed form, codes around each number, right on average."""

import pytest
import torch

from gnnpar.graph.kernels import DropoutKey
from gnnpar.parallel.quantised import dequantise, quantise

KEY = DropoutKey(1, 2, 3, 4)
BITS = (8, 4, 2)


def rows_of(count, width, dtype=torch.float64):
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (rows * torch.logspace(-3, 3, count, dtype=torch.float64)[:, None]).to(dtype)


def round_trip(rows, bits, key=KEY, ids=None):
    message = quantise(rows, torch.arange(len(rows)) if ids is None else ids, key, bits)
    return message, dequantise(message, rows.shape[1], rows.dtype, bits)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 4, 17])
def test_a_message_holds_the_codes_and_two_numbers_a_row(bits, dtype, width):
    rows = rows_of(9, width, dtype)
    message, found = round_trip(rows, bits)
    assert message.dtype == torch.uint8
    assert message.shape == (9, -(-width * bits // 8) + 2 * rows.element_size())
    step = (rows.amax(1) - rows.amin(1)) / (2**bits - 1)
    assert found.shape == rows.shape and found.dtype == dtype
    slack = 1 + 8 * torch.finfo(dtype).eps * 2**bits
    assert bool(((found - rows).abs() <= slack * step[:, None]).all())
    # Least and largest are codes themselves.
    for number in (rows.amin(1), rows.amax(1)):
        at = (rows == number[:, None]).nonzero()
        assert torch.allclose(found[at[:, 0], at[:, 1]], rows[at[:, 0], at[:, 1]], rtol=1e-5)


@pytest.mark.parametrize("bits", BITS)
def test_rows_of_one_value_and_no_rows_at_all(bits):
    constant = torch.tensor([[2.5] * 5, [0.0] * 5], dtype=torch.float64)
    assert torch.equal(round_trip(constant, bits)[1], constant)
    assert round_trip(constant[:0], bits)[1].shape == (0, 5)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_right_on_average(bits, dtype):
    """Means over independent keys, in units of their known standard deviations."""
    draws, rows = 1000, rows_of(12, 10, dtype)
    total = torch.zeros(rows.shape, dtype=torch.float64)
    for draw in range(draws):
        total += round_trip(rows, bits, DropoutKey(1, draw, 3, 4))[1].double()
    exact = rows.double()
    least, most = exact.amin(1, keepdim=True), exact.amax(1, keepdim=True)
    step = (most - least) / (2**bits - 1)
    part = ((exact - least) / step) % 1
    deviation = step * (part * (1 - part) / draws).sqrt()
    inner = (part > 0.01) & (part < 0.99)  # where the mean is normal
    z = ((total / draws - exact) / deviation)[inner]
    assert len(z) > 60 and float(z.abs().max()) < 4.5
    assert 0.6 < float(z.square().mean()) < 1.5
    assert float(((total / draws - exact).abs() / step).max()) < 0.1


def test_rounding_follows_from_key_vertex_and_column_alone():
    rows = rows_of(6, 8)
    ids = torch.tensor([5, 3, 900, 2**40, 7, 1])
    _, found = round_trip(rows, 2, ids=ids)
    order = torch.tensor([4, 0, 2, 5, 3, 1])
    assert torch.equal(round_trip(rows[order], 2, ids=ids[order])[1], found[order])
    for other in (DropoutKey(1, 2, 3, 5), DropoutKey(2, 2, 3, 4)):
        assert not torch.equal(round_trip(rows, 2, other, ids)[1], found)
