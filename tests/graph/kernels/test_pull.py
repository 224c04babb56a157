"""`pull` against dense algebra, for every backend, and its bits for every number of threads."""

import pytest
import torch

from gnnpar.graph import kernels
from tests.graph.kernels.cases import PULL_BACKENDS, make_case

# Below one vector, whole tiles of each size, and tiles with a remainder.
WIDTHS = [1, 7, 8, 24, 40, 64, 131, 259]


def expected(case, x, weighted, self_rows, scale, residual, a, b):
    total = case.dense(weighted) @ x.double()
    if self_rows is not None:
        total += x[self_rows : self_rows + case.num_rows]
    total *= a if scale is None else (a * scale)[:, None]
    return total if residual is None else total + b * residual


@pytest.mark.parametrize("backend", PULL_BACKENDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_dense(backend, width, weighted):
    case = make_case()
    x = torch.randn(case.num_columns, width, dtype=torch.float64)
    out = torch.full((case.num_rows, width), torch.nan, dtype=torch.float64)
    weight = case.weight if weighted else None
    result = kernels.pull(case.indptr, case.indices, x, out, weight=weight, backend=backend)
    assert result is out
    dense = case.dense(weighted)
    assert ((out - dense @ x).abs() <= 1e-12 * (dense.abs() @ x.abs())).all()


@pytest.mark.parametrize("backend", PULL_BACKENDS)
@pytest.mark.parametrize("self_rows", [None, 0, 5])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_epilogue(backend, self_rows, scaled, residual):
    case = make_case(num_columns=80)
    x = torch.randn(case.num_columns, 37, dtype=torch.float64)
    scale = torch.rand(case.num_rows, dtype=torch.float64) if scaled else None
    extra = torch.randn(case.num_rows, 37, dtype=torch.float64) if residual else None
    options = {"self_rows": self_rows, "scale": scale, "residual": extra, "a": 0.9, "b": -0.1}
    out = kernels.pull(
        case.indptr,
        case.indices,
        x,
        torch.empty(case.num_rows, 37, dtype=x.dtype),
        backend=backend,
        **options,
    )
    torch.testing.assert_close(out, expected(case, x, False, **options), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", PULL_BACKENDS)
@pytest.mark.parametrize("width", [5, 37, 64])
def test_gate_stops_the_sum_and_not_the_residual(backend, width):
    case = make_case()
    x, extra, gate = (torch.randn(n, width, dtype=torch.float64) for n in (45, 60, 60))
    gate[3] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf]).repeat(width // 5 + 1)[:width]
    out = torch.empty_like(extra)
    kernels.pull(case.indptr, case.indices, x, out, gate=gate, residual=extra, a=2.0, b=0.5, backend=backend)
    expected = torch.where(gate > 0, 2.0 * (case.dense(False) @ x), 0) + 0.5 * extra
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_gated_pull_is_the_gradient_of_relu_dropout_and_pull(backend):
    """The one pass that a hand-written backward of relu → dropout → scale → aggregation takes."""
    case, p, key = make_case(num_columns=60), 0.4, kernels.DropoutKey(1, 2, 3, 0)
    ids, c = torch.arange(60), torch.rand(60, dtype=torch.float64)
    x = torch.randn(60, 24, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(60, 24, dtype=torch.float64)
    (expected,) = torch.autograd.grad(
        case.dense(False).T @ (c[:, None] * kernels.relu_dropout(x, ids, key, p)), x, grad
    )
    y = kernels.relu_dropout_scaled(x, ids, key, p, c, torch.empty_like(grad))
    out = torch.empty_like(grad)
    kernels.pull(case.indptr, case.indices, grad, out, scale=c, gate=y, a=1 / (1 - p), backend=backend)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", PULL_BACKENDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_slices_of_indptr_give_the_rows_of_the_whole(backend, weighted):
    case = make_case()
    x = torch.randn(case.num_columns, 19, dtype=torch.float64)
    weight = case.weight if weighted else None
    whole = kernels.pull(
        case.indptr, case.indices, x, x.new_empty(case.num_rows, 19), weight=weight, backend=backend
    )
    # Empty slices, one of empty rows only, and the rest.
    for start, stop in ((0, 0), (0, 2), (2, 25), (25, case.num_rows)):
        part = case.rows(start, stop)
        out = torch.full((stop - start, 19), torch.nan, dtype=x.dtype)
        kernels.pull(part.indptr, part.indices, x, out, weight=weight, backend=backend)
        torch.testing.assert_close(out, whole[start:stop], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", PULL_BACKENDS)
def test_no_edges_at_all(backend):
    indptr, indices = torch.zeros(5, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    x = torch.randn(3, 6)
    assert not kernels.pull(indptr, indices, x, torch.ones(4, 6), backend=backend).any()


@pytest.mark.parametrize("backend", PULL_BACKENDS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_float32_and_both_index_types(backend, index):
    case = make_case(dtype=torch.float32, index=index)
    x = torch.randn(case.num_columns, 50)
    out = kernels.pull(
        case.indptr, case.indices, x, torch.empty(case.num_rows, 50), weight=case.weight, backend=backend
    )
    error = (out - case.dense(True) @ x.double()).abs()
    assert (error <= 1e-4 * (1 + case.dense(True).abs() @ x.double().abs())).all()


@pytest.mark.parametrize("backend", PULL_BACKENDS)
def test_views_of_larger_matrices_in_and_out(backend):
    case = make_case()
    x = torch.randn(case.num_columns + 9, 30, dtype=torch.float64)[4:-5, 3:22]
    buffer = torch.full((case.num_rows + 2, 25), 7.0, dtype=torch.float64)
    residual = torch.randn(19, case.num_rows, dtype=torch.float64).T
    kernels.pull(case.indptr, case.indices, x, buffer[1:-1, 2:21], residual=residual, b=1.0, backend=backend)
    torch.testing.assert_close(buffer[1:-1, 2:21], case.dense(False) @ x + residual, rtol=1e-12, atol=1e-12)
    buffer[1:-1, 2:21] = 7.0
    assert (buffer == 7.0).all()


@pytest.mark.parametrize("backend", PULL_BACKENDS)
def test_residual_may_be_out(backend):
    case = make_case()
    x = torch.randn(case.num_columns, 21, dtype=torch.float64)
    out = torch.randn(case.num_rows, 21, dtype=torch.float64)
    before = out.clone()
    kernels.pull(case.indptr, case.indices, x, out, residual=out, a=0.5, b=2.0, backend=backend)
    torch.testing.assert_close(out, 0.5 * case.dense(False) @ x + 2.0 * before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_threads_change_no_bit(backend, threads):
    case = make_case(num_rows=5000, num_columns=700, dtype=torch.float32)
    x = torch.randn(case.num_columns, 40)
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(
            kernels.pull(
                case.indptr,
                case.indices,
                x,
                torch.empty(case.num_rows, 40),
                weight=case.weight,
                backend=backend,
            )
        )
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_leaves_no_trace_in_autograd():
    case = make_case()
    x = torch.randn(case.num_columns, 8, dtype=torch.float64, requires_grad=True)
    assert not kernels.pull(
        case.indptr, case.indices, x, torch.empty(case.num_rows, 8, dtype=x.dtype)
    ).requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.randn(45, 8)}, "float64"),
        ({"out": torch.empty(59, 8, dtype=torch.float64)}, "expected"),
        ({"scale": torch.rand(59, dtype=torch.float64)}, "expected a contiguous"),
        ({"weight": torch.rand(3, dtype=torch.float64)}, "expected a contiguous"),
        ({"out": torch.empty(8, 60, dtype=torch.float64).T}, "dense rows"),
        ({"self_rows": 1}, "self_rows"),
    ],
)
def test_what_does_not_fit_is_refused_before_memory_is_touched(change, message):
    case = make_case()
    arguments = {
        "x": torch.randn(45, 8, dtype=torch.float64),
        "out": torch.empty(60, 8, dtype=torch.float64),
    } | change
    with pytest.raises(ValueError, match=message):
        kernels.pull(case.indptr, case.indices, backend="numba", **arguments)


def test_integers_are_refused():
    case = make_case()
    with pytest.raises(TypeError, match="int64"):
        kernels.pull(
            case.indptr,
            case.indices,
            torch.ones(45, 2, dtype=torch.int64),
            torch.ones(60, 2),
            backend="numba",
        )
