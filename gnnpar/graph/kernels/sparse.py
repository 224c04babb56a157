"""`sparse_linear`: a linear map of sparse rows with dropout on the non-zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.features import SparseRows
from gnnpar.graph.kernels.backend import (
    Backend,
    blocks,
    choose,
    dense_rows,
    index,
    matrix,
    number,
    run,
    vector,
)
from gnnpar.graph.kernels.keys import DropoutKey, entry_hash, row_words, threshold
from gnnpar.graph.kernels.pull import pull

__all__ = ["sparse_linear"]


def sparse_linear(
    x: SparseRows,
    weight: Tensor,
    ids: Tensor,
    key: DropoutKey | None,
    p: float,
    *,
    backend: Backend | None = None,
) -> Tensor:
    """`dropout(x) @ weight` `[n, H]`, with the mask of `dropout` on the dense matrix; no key: no dropout.

    Differentiable in weight `[F, H]` only.

    Args:
        x: n rows of F columns, or a view of them (`SparseRows.rows`). ids: `[n]` int64 original vertex ids.

    Cost: each way one pass over the non-zeros that are kept, H numbers each; keeps those non-zeros.
    """
    return _SparseLinear.apply(weight, x, ids, key, p, backend)  # type: ignore[no-any-return,no-untyped-call]


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        x: SparseRows,
        ids: Tensor,
        key: DropoutKey | None,
        p: float,
        backend: Backend | None,
    ) -> Tensor:
        kept = x if key is None or p == 0.0 else drop_nonzeros(x, ids, key, p, backend=backend)
        out = torch.empty(x.shape[0], weight.shape[1], dtype=weight.dtype, device=weight.device)
        ctx.kept, ctx.backend = kept, backend
        return pull(kept.indptr, kept.indices, weight, out, weight=kept.values, backend=backend)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = sparse_linear_backward(ctx.kept, grads[0], None, backend=ctx.backend)
        return grad, None, None, None, None, None


@torch.no_grad()
def drop_nonzeros(
    x: SparseRows, ids: Tensor, key: DropoutKey, p: float, *, backend: Backend | None = None
) -> SparseRows:
    """The non-zeros that dropout keeps, times 1 / (1 - p). Cost: one pass over the non-zeros."""
    first, last = int(x.indptr[0]), int(x.indptr[-1])
    k0, k1 = key.words()
    if choose(backend, x.values) == "torch":
        counts = x.indptr.diff()
        r0, r1 = (torch.repeat_interleave(word, counts) for word in row_words(ids, k0, k1))
        kept = entry_hash(r0, r1, x.indices[first:last].long()) >= threshold(p)
        indptr = torch.nn.functional.pad(torch.cumsum(kept, 0), (1, 0))[x.indptr - first]
        values = x.values[first:last][kept] * (1 / (1 - p))
        return SparseRows(indptr, x.indices[first:last][kept], values, x.num_columns)
    from gnnpar.graph.kernels.loops.sparse import drop_nonzeros as loop

    num_rows = x.shape[0]
    indptr = torch.empty(num_rows + 1, dtype=torch.int64)
    indices = torch.empty(last - first, dtype=x.indices.dtype)
    values = torch.empty(last - first, dtype=x.values.dtype)
    count = loop(
        num_rows,
        *_addresses(x, x.values.dtype),
        vector(ids, torch.int64, num_rows),
        *key.words(),
        threshold(p),
        number(x.values.dtype)(1 / (1 - p)),
        indptr.data_ptr(),
        indices.data_ptr(),
        values.data_ptr(),
    )
    return SparseRows(indptr, indices[:count], values[:count], x.num_columns)


@torch.no_grad()
def sparse_linear_backward(
    x: SparseRows, grad: Tensor, out: Tensor | None, *, backend: Backend | None = None
) -> Tensor:
    """xᵀ · grad `[F, H]`, added to `out` where given (no autograd).

    Deterministic: threads share the columns of `grad`, and rows are always added in their order.
    """
    if out is None:
        out = torch.zeros(x.num_columns, grad.shape[1], dtype=grad.dtype, device=grad.device)
    if choose(backend, grad) == "numba":
        from gnnpar.graph.kernels.loops.pull import scatter_columns

        kind, (num_rows, width) = grad.dtype, grad.shape
        grad = dense_rows(grad)
        run(
            scatter_columns,
            blocks(width, x.values.numel() * width),
            num_rows,
            *_addresses(x, kind),
            *matrix(grad, kind, x.shape[0], width),
            number(kind)(0),
            *matrix(out, kind, x.num_columns, width),
        )
        return out
    first, last = int(x.indptr[0]), int(x.indptr[-1])
    row = torch.repeat_interleave(torch.arange(x.shape[0], device=grad.device), x.indptr.diff())
    order = torch.sort(x.indices[first:last], stable=True).indices
    columns = x.indices[first:last][order]
    indptr = torch.searchsorted(
        columns, torch.arange(x.num_columns + 1, device=grad.device, dtype=columns.dtype)
    )
    total = torch.empty_like(out)
    pull(indptr, row[order], grad, total, weight=x.values[first:last][order], backend=backend)
    return out.add_(total)


def _addresses(x: SparseRows, kind: torch.dtype) -> tuple[Any, ...]:
    """indptr, indices, the type of these, values."""
    size = x.indices.numel()
    indptr = vector(x.indptr, torch.int64, x.shape[0] + 1)
    return indptr, vector(x.indices, x.indices.dtype, size), index(x.indices), vector(x.values, kind, size)
