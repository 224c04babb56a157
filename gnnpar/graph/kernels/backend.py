"""Which implementation runs, on how many threads, and how tensors are handed to the loops."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from gnnpar.graph.kernels.compile import has_numba

__all__ = [
    "Backend",
    "blocks",
    "choose",
    "dense_rows",
    "edge_blocks",
    "index",
    "matrix",
    "number",
    "run",
    "vector",
]

Backend = Literal["numba", "torch", "dgl"]
"""numba: compiled loops, CPU. torch: any device. dgl: `pull` only, CPU, where DGL is installed."""

MaybeTensor = TypeVar("MaybeTensor", Tensor, Tensor | None)

_NUMBERS: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
_INDICES: dict[torch.dtype, Any] = {torch.int32: np.int32(0), torch.int64: np.int64(0)}
_SMALL = 1 << 16  # numbers read; below, waking a thread costs more than it saves


def choose(backend: Backend | None, like: Tensor) -> Backend:
    """The given backend, or the fastest there is for a tensor of this device and type."""
    if backend is not None:
        return backend
    return "numba" if like.dtype in _NUMBERS and like.device.type == "cpu" and has_numba() else "torch"


def number(dtype: torch.dtype) -> Any:
    """NumPy's scalar type: a Python float would make numba compute in float64."""
    try:
        return _NUMBERS[dtype]
    except KeyError:
        raise TypeError(f"compiled kernels compute in float32 and float64, got {dtype}") from None


def index(indices: Tensor) -> Any:
    """A number of the type of `indices`."""
    try:
        return _INDICES[indices.dtype]
    except KeyError:
        raise TypeError(f"indices must be int32 or int64, got {indices.dtype}") from None


def vector(tensor: Tensor | None, dtype: torch.dtype, size: int) -> int:
    """Address of a dense vector after checking what it is; 0 for None. The tensor must outlive it."""
    if tensor is None:
        return 0
    if tensor.dtype != dtype or tensor.shape != (size,) or not tensor.is_contiguous() or tensor.is_cuda:
        raise ValueError(f"expected a contiguous [{size}] {dtype} on the CPU, got {_describe(tensor)}")
    return tensor.data_ptr()


def matrix(tensor: Tensor | None, dtype: torch.dtype, num_rows: int, width: int) -> tuple[int, int]:
    """Address and row stride of a matrix with dense rows after checking what it is; (0, 0) for None."""
    if tensor is None:
        return 0, 0
    if tensor.dtype != dtype or tensor.shape != (num_rows, width) or tensor.is_cuda or not _dense(tensor):
        raise ValueError(
            f"expected [{num_rows}, {width}] {dtype} with dense rows on the CPU, got {_describe(tensor)}"
        )
    return tensor.data_ptr(), tensor.stride(0)


def dense_rows(matrix: MaybeTensor) -> MaybeTensor:
    """The matrix itself where its rows are dense, else a copy."""
    return matrix if matrix is None or _dense(matrix) else matrix.contiguous()


def blocks(num_rows: int, size: int) -> list[int]:
    """Borders that cut rows into one block a thread; `size` is the count of numbers read.

    A row is computed in one block and in one order, so results do not depend on the number of threads.
    Threads: `torch.get_num_threads()`.
    """
    count = _num_blocks(num_rows, size)
    return [num_rows * block // count for block in range(count + 1)]


def edge_blocks(indptr: Tensor, width: int) -> list[int]:
    """As `blocks`, of equal numbers of edges, `width` numbers each: rows of real graphs are not alike."""
    num_rows = indptr.numel() - 1
    if torch.get_num_threads() == 1:
        return [0, num_rows]
    ends = indptr.numpy()
    count = _num_blocks(num_rows, int(ends[-1] - ends[0]) * width)
    if count == 1:
        return [0, num_rows]
    work = ends - ends[0] + np.arange(num_rows + 1)  # an empty row is not free
    inner = np.searchsorted(work, work[-1] * np.arange(1, count) // count)
    return [0, *inner.tolist(), num_rows]


def run(loop: Callable[..., Any], borders: list[int], *arguments: Any) -> None:
    """Call `loop(first, last, *arguments)` for every block, the first on the calling thread.

    The loops release the interpreter lock, so plain threads run them side by side: no second, parallel
    compilation, no threading layer, and no thread that may not call them.
    """
    if len(borders) == 2:
        loop(borders[0], borders[1], *arguments)
        return
    pool = _pool(len(borders) - 2)
    rest = [pool.submit(loop, first, last, *arguments) for first, last in pairwise(borders[1:])]
    loop(borders[0], borders[1], *arguments)
    for task in rest:
        task.result()


def _num_blocks(num_rows: int, size: int) -> int:
    return 1 if size < _SMALL else max(1, min(torch.get_num_threads(), num_rows))


def _dense(matrix: Tensor) -> bool:
    return matrix.stride(1) == 1 or matrix.shape[1] <= 1


def _describe(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype} with strides {list(tensor.stride())} on {tensor.device}"


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="gnnpar-kernel")
