"""Dropout passes: values, gradients, threads; each backend against the definition."""

import pytest
import torch

from gnnpar.graph import kernels
from gnnpar.graph.kernels import DropoutKey, keep_mask
from tests.graph.kernels.cases import BACKENDS

KEY = DropoutKey(seed=3, step=1, layer=4, site=0)
IDS = torch.tensor([5, 0, 2**40, 17, 3, 8, 12])
P = 0.4


def rows(width=21, dtype=torch.float64, **options):
    return torch.randn(IDS.numel(), width, dtype=dtype, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values(backend, dtype):
    x, kept = rows(dtype=dtype), keep_mask(KEY, IDS, 21, P)
    torch.testing.assert_close(kernels.dropout(x, IDS, KEY, P, backend=backend), x * kept / (1 - P))
    torch.testing.assert_close(
        kernels.relu_dropout(x, IDS, KEY, P, backend=backend), x.relu() * kept / (1 - P)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [kernels.dropout, kernels.relu_dropout])
def test_gradients(backend, function):
    x = rows(requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: function(x, IDS, KEY, P, backend=backend), x)
    if function is kernels.dropout:
        assert torch.autograd.gradgradcheck(lambda x: function(x, IDS, KEY, P, backend=backend), x)
    with torch.no_grad():
        assert not function(x, IDS, KEY, P, backend=backend).requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [kernels.dropout, kernels.relu_dropout])
def test_gradients_that_arrive_expanded_or_transposed(backend, function):
    x = rows(requires_grad=True)
    y = function(x, IDS, KEY, P, backend=backend)
    for seed in (torch.ones(()).double().expand(y.shape), rows().T.contiguous().T):
        (grad,) = torch.autograd.grad(y, x, seed, retain_graph=True)
        open_ = keep_mask(KEY, IDS, 21, P) & ((x > 0) if function is kernels.relu_dropout else True)
        torch.testing.assert_close(grad, seed * open_ / (1 - P))


def test_relu_dropout_keeps_its_result_only():
    kept = []
    x = rows(requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = kernels.relu_dropout(x, IDS, KEY, P)
    assert [t.data_ptr() for t in kept] == [y.data_ptr()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("scaled", [False, True])
def test_scaled_pass_and_its_gradient(backend, key, scaled):
    x, grad = rows(requires_grad=True), rows()
    scale = torch.rand(IDS.numel(), dtype=x.dtype) if scaled else None
    p = 0.0 if key is None else P
    buffer = torch.full((IDS.numel() + 2, 25), 7.0, dtype=x.dtype)
    out = kernels.relu_dropout_scaled(x, IDS, key, P, scale, buffer[1:-1, 2:23], backend=backend)
    kept = torch.ones(out.shape) if key is None else keep_mask(KEY, IDS, 21, P)
    factor = kept / (1 - p) * (1 if scale is None else scale[:, None])
    torch.testing.assert_close(out, x.detach().relu() * factor)
    (expected,) = torch.autograd.grad(x.relu() * factor, x, grad)
    back = kernels.relu_dropout_backward(grad, out, p, scale, torch.empty_like(grad), backend=backend)
    torch.testing.assert_close(back, expected)
    out.fill_(7.0)
    assert (buffer == 7.0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_scale_rows(backend):
    x, scale = rows(), torch.rand(IDS.numel(), dtype=torch.float64)
    assert torch.equal(kernels.scale_rows(x, scale, torch.empty_like(x), backend=backend), x * scale[:, None])
    assert torch.equal(kernels.scale_rows(x, None, torch.empty_like(x), backend=backend), x)
    twice = x.clone()
    assert torch.equal(kernels.scale_rows(twice, scale, twice, backend=backend), x * scale[:, None])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scaled", [False, True])
def test_split_rows(backend, scaled):
    x, total, scale = rows(), rows(), torch.rand(IDS.numel(), dtype=torch.float64)
    expected = 0.9 * x * (scale[:, None] if scaled else 1), total + 0.1 * x
    out = kernels.split_rows(
        x, scale if scaled else None, torch.empty_like(x), total, a=0.9, b=0.1, backend=backend
    )
    torch.testing.assert_close((out, total), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_is_not_hidden(backend):
    x = torch.full((IDS.numel(), 21), torch.nan)
    for function in (kernels.dropout, kernels.relu_dropout):
        assert torch.equal(function(x, IDS, KEY, P, backend=backend).isnan(), keep_mask(KEY, IDS, 21, P))


@pytest.mark.parametrize("backend", BACKENDS)
def test_chunks_and_threads_change_no_bit(backend, threads):
    ids = torch.randperm(9000, generator=torch.Generator().manual_seed(0))
    x = torch.randn(9000, 40)
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(kernels.dropout(x, ids, KEY, P, backend=backend))
    parts = [
        kernels.dropout(x[i : i + 1234], ids[i : i + 1234], KEY, P, backend=backend)
        for i in range(0, 9000, 1234)
    ]
    for other in (results[1], results[2], torch.cat(parts)):
        assert torch.equal(results[0], other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows(backend):
    x, ids = torch.empty(0, 5), torch.empty(0, dtype=torch.int64)
    assert kernels.relu_dropout(x, ids, KEY, P, backend=backend).shape == (0, 5)


def test_backends_agree_to_the_bit():
    x = rows(dtype=torch.float32)
    one, other = (kernels.dropout(x, IDS, KEY, P, backend=backend) for backend in BACKENDS)
    assert torch.equal(one, other)
