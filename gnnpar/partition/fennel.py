"""Fennel streaming (Tsourakakis et al. 2014), γ = 3/2, restreamed."""

from __future__ import annotations

import math

from gnnpar.partition.problem import IntArray, Problem
from gnnpar.partition.stream import stream

__all__ = ["fennel"]


def fennel(problem: Problem) -> IntArray:
    """`[N]` part of every vertex: most neighbours, less the marginal cost of the part's load (§3 there).

    The cost of a load n is α · n^γ with α = m · √C / N^γ; its derivative is 3/2 · α · √n.
    """
    num_edges = problem.structure.nnz / 2
    alpha = num_edges * math.sqrt(problem.num_parts) / problem.num_nodes**1.5
    return stream(problem, slope=0.0, root=1.5 * alpha)
