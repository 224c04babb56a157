"""Linear deterministic greedy streaming (Stanton and Kliot 2012), restreamed."""

from __future__ import annotations

from gnnpar.partition.problem import IntArray, Problem
from gnnpar.partition.stream import capacity_of, stream

__all__ = ["ldg"]


def ldg(problem: Problem) -> IntArray:
    """`[N]` part of every vertex: most neighbours, discounted by how full the part is."""
    return stream(problem, slope=1 / capacity_of(problem), root=0.0)
