"""Which implementation runs, on how many threads, and how a matrix is handed to it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.graph.kernels.compile import has_numba

__all__ = ["Backend", "array", "choose", "flat", "row_blocks", "run_blocks"]

Backend = Literal["numba", "torch", "dgl"]
"""numba: compiled loops, CPU. torch: any device. dgl: `pull` only, CPU, where DGL is installed."""

_SMALL = 1 << 15  # numbers; below, waking a thread costs more than it saves


def choose(backend: Backend | None, like: Tensor) -> Backend:
    """The given backend, or the fastest that is there for a tensor of this device and type."""
    if backend is not None:
        return backend
    compiled = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64) and has_numba()
    return "numba" if compiled else "torch"


def array(tensor: Tensor | None, like: Tensor) -> npt.NDArray[Any]:
    """As NumPy array; an empty one for None, so that both are one type to numba."""
    if tensor is None:
        return _empty(like.dtype)
    return tensor.detach().contiguous().numpy()


def flat(matrix: Tensor) -> tuple[npt.NDArray[Any], int]:
    """A matrix `[n, K]` as one array over its memory, and its row stride. Copies where rows are not dense."""
    rows, width = matrix.shape
    matrix = matrix.detach()
    if width and matrix.stride(1) != 1:
        matrix = matrix.contiguous()
    stride = matrix.stride(0) if rows > 1 else width
    length = (rows - 1) * stride + width if rows else 0
    return matrix.as_strided((length,), (1,)).numpy(), stride


def row_blocks(num_rows: int, size: int, indptr: Tensor | None = None) -> list[int]:
    """Borders that cut rows into one block a thread, of equal edges where `indptr` is given.

    Blocks end at rows and a row is always summed in the same order, so results do not depend on their number.
    Threads: those of torch, `torch.get_num_threads()`.
    """
    num_blocks = min(torch.get_num_threads(), max(1, num_rows)) if size > _SMALL else 1
    if num_blocks == 1:
        return [0, num_rows]
    if indptr is None:
        return [num_rows * block // num_blocks for block in range(num_blocks + 1)]
    ends = indptr.numpy()
    cost = ends - ends[0] + np.arange(num_rows + 1)  # an empty row is not free
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, num_blocks) // num_blocks)
    return [0, *inner.tolist(), num_rows]


def run_blocks(loop: Callable[..., Any], borders: list[int], *arguments: Any) -> None:
    """Call `loop(first, last, *arguments)` for every block, the first on the calling thread.

    The loops release the interpreter lock. Plain threads need no second compilation, no threading layer,
    and may be used from any thread.
    """
    rest = [
        _pool(len(borders) - 2).submit(loop, first, last, *arguments)
        for first, last in zip(borders[1:-1], borders[2:], strict=True)
    ]
    loop(borders[0], borders[1], *arguments)
    for task in rest:
        task.result()


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="gnnpar-kernel")


@cache
def _empty(dtype: torch.dtype) -> npt.NDArray[Any]:
    return torch.empty(0, dtype=dtype).numpy()
