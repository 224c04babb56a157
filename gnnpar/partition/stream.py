"""Streaming partitioning: vertices come one by one, and each goes to the part that scores best for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gnnpar.partition.problem import IntArray, Problem

__all__ = ["stream"]

SLACK = 1.05
"""A part holds at most this multiple of the mean weight."""

NUM_PASSES = 10
"""The stream runs again over its own result (Nishimura and Ugander 2013), and the cut falls."""


def stream(problem: Problem, slope: float, root: float) -> IntArray:
    """`[N]` part of every vertex. Part p scores `neighbours in p · (1 − slope · load) − root · √load`.

    `load` is in units of the mean vertex weight; ties go to the lighter part, then to the lower number.
    Cost: O(passes · (E + N · C)) time, O(N + C) memory beyond the structure. Serial, so any machine agrees.
    """
    graph = problem.structure
    weight = problem.weight / problem.weight.mean()
    order = np.random.default_rng(problem.seed).permutation(problem.num_nodes)
    part = np.full(problem.num_nodes, -1, dtype=np.int32)
    capacity = capacity_of(problem)
    indptr = graph.indptr.astype(np.int64)
    indices = graph.indices.astype(np.int32)
    load = np.zeros(problem.num_parts)
    _compiled()(indptr, indices, weight, order, part, load, capacity, slope, root, NUM_PASSES)
    return part


def capacity_of(problem: Problem) -> float:
    """Largest load of a part, in units of the mean vertex weight."""
    return SLACK * problem.num_nodes / problem.num_parts


@cache
def _compiled() -> Callable[..., None]:
    """The loop, compiled where numba is installed (some fifty times faster; the same results)."""
    try:
        import numba
    except ImportError:
        return _stream
    compiled: Callable[..., None] = numba.njit(cache=True, nogil=True)(_stream)
    return compiled


def _stream(
    indptr: Any,
    indices: Any,
    weight: Any,
    order: Any,
    part: Any,
    load: Any,
    capacity: float,
    slope: float,
    root: float,
    num_passes: int,
) -> None:
    num_parts = load.shape[0]
    count = np.zeros(num_parts)
    for _ in range(num_passes):
        moved = 0
        for v in order:
            old = part[v]
            if old >= 0:
                load[old] -= weight[v]
            for e in range(indptr[v], indptr[v + 1]):
                p = part[indices[e]]
                if p >= 0:
                    count[p] += 1
            best = -1
            best_score = 0.0
            lightest = 0
            for p in range(num_parts):
                if load[p] < load[lightest]:
                    lightest = p
                if load[p] + weight[v] > capacity:
                    continue
                score = count[p] * (1 - slope * load[p]) - root * math.sqrt(max(load[p], 0.0))
                if best < 0 or score > best_score or (score == best_score and load[p] < load[best]):
                    best = p
                    best_score = score
            if best < 0:
                best = lightest
            for e in range(indptr[v], indptr[v + 1]):
                p = part[indices[e]]
                if p >= 0:
                    count[p] = 0
            part[v] = best
            load[best] += weight[v]
            moved += best != old
        if moved == 0:
            break
