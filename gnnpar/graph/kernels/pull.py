"""`pull`: sum of neighbours' rows, scaled, plus a residual: the aggregation of fixed linear operators."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from gnnpar.graph.kernels.backend import (
    Backend,
    choose,
    dense_rows,
    edge_blocks,
    index,
    matrix,
    number,
    run,
    vector,
)

__all__ = ["pull"]


def pull(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    weight: Tensor | None = None,
    self_rows: int | None = None,
    scale: Tensor | None = None,
    gate: Tensor | None = None,
    residual: Tensor | None = None,
    a: float = 1.0,
    b: float = 0.0,
    backend: Backend | None = None,
) -> Tensor:
    """Write into `out`, and return, for every row i (no autograd):

        out[i] = [gate[i] > 0] · a · scale[i] · s[i] + b · residual[i]
        s[i] = Σ_e weight[e] · x[indices[e]] + x[self_rows + i]

    with e from `indptr[i]` to `indptr[i + 1]`; what is None is left out.

    Args:
        indptr: `[R + 1]` int64 positions in `indices` and `weight`; may be a slice of a longer one.
        indices: `[E]` int32 or int64 rows of x. weight: `[E]`.
        x: `[M, K]`. residual, out: `[R, K]`. Views of rows or columns of larger matrices are fine;
            `out` may be `residual`, but must not overlap x.
        self_rows: row of x that belongs to row 0, where every row reads itself too.
        scale: `[R]`.
        gate: `[R, K]`. Where the gradient of a sum meets that of a `relu_dropout_scaled` before it,
            the result of that is the gate and a = 1 / (1 - p): the two are one pass.

    Threads: `torch.get_num_threads()`, each with its share of the edges; their number changes no bit.
    Cost: one gather of K numbers per edge, one write of `[R, K]`; nothing of size E × K.
    """
    chosen = choose(backend, x)
    if chosen == "numba":
        return _numba(indptr, indices, x, out, weight, self_rows, scale, gate, residual, a, b)
    with torch.no_grad():
        if chosen == "torch":
            total = _torch_sum(indptr, indices, x, weight)
        else:
            from gnnpar.graph.kernels.dgl_sum import dgl_sum

            total = dgl_sum(indptr, indices, x, weight)
        if self_rows is not None:
            total += x[self_rows : self_rows + out.shape[0]]
        total *= a if scale is None else (a * scale)[:, None]
        if gate is not None:
            total = torch.where(gate > 0, total, 0)
        if residual is not None:
            total += b * residual
        return out.copy_(total)


def _numba(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    weight: Tensor | None,
    self_rows: int | None,
    scale: Tensor | None,
    gate: Tensor | None,
    residual: Tensor | None,
    a: float,
    b: float,
) -> Tensor:
    from gnnpar.graph.kernels.loops.pull import pull_rows

    kind, (num_rows, width) = x.dtype, out.shape
    if self_rows is not None and not 0 <= self_rows <= x.shape[0] - num_rows:
        raise ValueError(f"self_rows {self_rows} + {num_rows} rows of out exceed the {x.shape[0]} rows of x")
    x, gate, residual = dense_rows(x), dense_rows(gate), dense_rows(residual)
    run(
        pull_rows,
        edge_blocks(indptr, width),
        vector(indptr, torch.int64, num_rows + 1),
        vector(indices, indices.dtype, indices.numel()),
        index(indices),
        None if weight is None else vector(weight, kind, indices.numel()),
        *matrix(x, kind, x.shape[0], width),
        -1 if self_rows is None else self_rows,
        vector(scale, kind, num_rows),
        *matrix(gate, kind, num_rows, width),
        *matrix(residual, kind, num_rows, width),
        number(kind)(a),
        number(kind)(b),
        *matrix(out, kind, num_rows, width),
        width,
    )
    return out


def _torch_sum(indptr: Tensor, indices: Tensor, x: Tensor, weight: Tensor | None) -> Tensor:
    first, last = int(indptr[0]), int(indptr[-1])
    num_rows = indptr.numel() - 1
    if first == last:
        return x.new_zeros(num_rows, x.shape[1])
    values = x.new_ones(last - first) if weight is None else weight[first:last]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(
            indptr - first, indices[first:last].long(), values, (num_rows, x.shape[0]), check_invariants=False
        )
    if x.device.type == "cpu":
        return torch.sparse.mm(matrix, x, "sum")  # type: ignore[no-any-return]
    return matrix @ x
