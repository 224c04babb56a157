"""Seeded random parts of about equal cost: the baseline that every other method must beat."""

from __future__ import annotations

import numpy as np

from gnnpar.partition.problem import IntArray, Problem
from gnnpar.partition.range import split

__all__ = ["at_random"]


def at_random(problem: Problem) -> IntArray:
    """`[N]` part of every vertex: a random order, cut into pieces."""
    order = np.random.default_rng(problem.seed).permutation(problem.num_nodes)
    part = np.empty(problem.num_nodes, dtype=np.int32)
    part[order] = split(problem.weight[order], problem.num_parts)
    return part
