"""Contiguous ranges of the graph's own numbering, of about equal cost."""

from __future__ import annotations

import numpy as np

from gnnpar.partition.problem import IntArray, Problem

__all__ = ["by_range", "split"]


def by_range(problem: Problem) -> IntArray:
    """`[N]` part of every vertex. Good where the numbering is (by time, by crawl), free always."""
    return split(problem.weight, problem.num_parts)


def split(weight: IntArray, num_parts: int) -> IntArray:
    """`[N]` ascending part numbers: a sequence cut into pieces of about equal weight, none empty."""
    middle = np.cumsum(weight) - weight / 2
    cuts = np.searchsorted(middle, weight.sum() * np.arange(1, num_parts) / num_parts)
    # Cut i leaves at least i items before it and num_parts - i behind it, and is behind cut i - 1.
    steps = np.arange(1, num_parts)
    cuts = np.maximum.accumulate(np.maximum(cuts, steps) - steps) + steps
    cuts = np.minimum(cuts, weight.size - num_parts + steps)
    return np.repeat(np.arange(num_parts, dtype=np.int32), np.diff(cuts, prepend=0, append=weight.size))
