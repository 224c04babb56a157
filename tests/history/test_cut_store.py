"""The buffer of a layer's cut."""

import pytest
import torch

from gnnpar.errors import RunError
from gnnpar.history import CutStore


def test_reading_before_a_write_is_an_error_and_not_zero():
    store = CutStore(5, 1)
    with pytest.raises(RunError, match="before any chunk has written"):
        _ = store.buffer
    with pytest.raises(RunError):
        store.new_copy()


def test_rows_are_written_scaled_into_the_copy_asked_for():
    store = CutStore(5, 2)
    x, scale = torch.randn(2, 3).double(), torch.tensor([2.0, -1.0]).double()
    store.write(1, x, offset=5, scale=scale)
    store.write(3, x, offset=0)
    assert store.buffer.shape == (10, 3) and store.buffer.dtype == torch.float64
    assert torch.equal(store.buffer[6:8], x * scale[:, None]) and torch.equal(store.buffer[3:5], x)
    before = store.buffer.clone()
    store.write(0, x, offset=5)
    assert torch.equal(store.buffer[5:7], x)
    others = [0, 1, 2, 3, 4, 7, 8, 9]
    assert torch.equal(store.buffer[others].nan_to_num(), before[others].nan_to_num())


def test_rows_of_any_shape_are_kept_flat_and_shaped_back():
    store = CutStore(4, 1)
    x = torch.randn(4, 2, 3)
    store.write(0, x, 0)
    assert store.buffer.shape == (4, 6) and store.tail == (2, 3)
    assert torch.equal(store.shaped(store.buffer[1:3]), x[1:3])
    assert store.new_copy().shape == (4, 6)


def test_later_writes_keep_the_buffer():
    store = CutStore(3, 1)
    store.write(0, torch.ones(2, 2), 0)
    buffer = store.buffer
    store.write(2, torch.full((1, 2), 3.0), 0)
    assert store.buffer is buffer and buffer.tolist() == [[1, 1], [1, 1], [3, 3]]
