"""`sparse_linear` against the dense map of a densely dropped matrix."""

import pytest
import torch

from gnnpar.graph import kernels
from gnnpar.graph.kernels import DropoutKey
from tests.graph.kernels.cases import BACKENDS, make_sparse

KEY = DropoutKey(seed=3, step=1, layer=0, site=2)
P = 0.4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("width", [1, 8, 27, 64])
def test_equals_dense(backend, key, width):
    x, dense = make_sparse()
    ids = torch.randperm(1000)[: len(dense)]
    weight = torch.randn(x.num_columns, width, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(len(dense), width, dtype=torch.float64)
    out = kernels.sparse_linear(x, weight, ids, key, P, backend=backend)
    expected = (dense if key is None else kernels.dropout(dense, ids, key, P)) @ weight
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        *(torch.autograd.grad(y, weight, grad)[0] for y in (out, expected)), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradcheck(backend):
    x, dense = make_sparse(num_rows=12, num_columns=9)
    weight = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.arange(len(dense))
    assert torch.autograd.gradcheck(
        lambda w: kernels.sparse_linear(x, w, ids, KEY, P, backend=backend), weight
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", [KEY, None])
def test_chunks_add_up_to_the_whole(backend, key):
    x, dense = make_sparse()
    ids = torch.randperm(1000)[: len(dense)]
    weight = torch.randn(x.num_columns, 20, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(len(dense), 20, dtype=torch.float64)
    whole = kernels.sparse_linear(x, weight, ids, key, P, backend=backend)
    (whole_grad,) = torch.autograd.grad(whole, weight, grad)
    total = torch.zeros_like(whole_grad)
    for part in (slice(0, 0), slice(0, 6), slice(6, 33), slice(33, len(dense))):
        own = x.rows(part.start, part.stop)
        out = kernels.sparse_linear(own, weight, ids[part], key, P, backend=backend)
        assert torch.equal(out, whole[part])
        total += torch.autograd.grad(out, weight, grad[part])[0]
        if key is not None:
            dropped = kernels.drop_nonzeros(own, ids[part], key, P, backend=backend)
            assert torch.equal(dropped.to_dense(), kernels.dropout(dense[part], ids[part], key, P))
    torch.testing.assert_close(total, whole_grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_change_no_bit(backend, threads):
    x, _ = make_sparse(num_rows=800, num_columns=50, dtype=torch.float32)
    weight = torch.randn(50, 37, requires_grad=True)
    grad = torch.randn(800, 37)
    results = []
    for count in (1, 2, 3):
        threads(count)
        out = kernels.sparse_linear(x, weight, torch.arange(800), KEY, P, backend=backend)
        results.append((out, torch.autograd.grad(out, weight, grad)[0]))
    for out, weight_grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(weight_grad, results[0][1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_adds_to_what_is_there(backend):
    x, dense = make_sparse()
    grad = torch.randn(len(dense), 11, dtype=torch.float64)
    out = torch.ones(x.num_columns, 11, dtype=torch.float64)
    assert kernels.sparse_linear_backward(x, grad, out, backend=backend) is out
    torch.testing.assert_close(out, 1 + dense.T @ grad, rtol=1e-12, atol=1e-12)
