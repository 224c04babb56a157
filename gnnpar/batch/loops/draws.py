"""Draws as functions of a key, a vertex and a counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnpar.graph.kernels.compile import has_numba, jit

if has_numba():
    from gnnpar.graph.kernels.loops.hash import entry_hash, row_words
else:
    from gnnpar.graph.kernels.keys import entry_hash, row_words

__all__ = ["below", "compiled", "distinct", "grown", "repeated", "row_words"]


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator: compiled where numba is, else plain Python with the same results."""
    return jit(function) if has_numba() else function


@compiled
def below(r0: Any, r1: Any, counter: Any, bound: Any) -> Any:
    """A draw from 0 … bound - 1 (bound < 2^31; each value is off by at most one part in 2^32 / bound)."""
    return (np.int64(entry_hash(r0, r1, counter)) * bound) >> 32


@compiled
def distinct(r0: Any, r1: Any, first: Any, degree: Any, size: Any, out: Any, at: Any) -> None:
    """`size` distinct numbers of first … first + degree - 1 (Floyd's algorithm)."""
    end = at
    for last in range(degree - size, degree):
        drawn = first + below(r0, r1, last, last + 1)
        taken = False
        for i in range(at, end):
            taken |= out[i] == drawn
        out[end] = first + last if taken else drawn  # first + last is larger than all before it
        end += 1


@compiled
def repeated(r0: Any, r1: Any, first: Any, degree: Any, size: Any, out: Any, at: Any) -> None:
    """`size` independent draws of first … first + degree - 1."""
    for i in range(size):
        out[at + i] = first + below(r0, r1, i, degree)


@compiled
def grown(array: Any, size: Any) -> Any:
    """The array itself where it holds `size` numbers, else a copy with room for twice as many."""
    if size <= array.size:
        return array
    larger = np.empty(2 * size, array.dtype)
    larger[: array.size] = array
    return larger
