"""`Sizes`: names for the lengths of tensors, on a graph made so that no two of them are equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from gnnpar.analysis.expr import ONE, Expr, symbol
from gnnpar.graph import Graph

__all__ = ["Sizes", "probe_graph", "probe_sizes"]

_VERTICES = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113)
_EDGES = (181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239, 241, 251)


@dataclass(frozen=True)
class Sizes:
    """What the lengths of a probe graph's tensors stand for.

    A length that is no name's is a multiple of m, n or m + n times a width, or stands for itself.

    Attributes:
        n, m: vertices and edges of the probe graph.
        widths: number → its symbol or product of symbols.
    """

    n: int
    m: int
    widths: Mapping[int, Expr]

    def of(self, size: int) -> Expr:
        """What a length stands for."""
        if size in self.widths:
            return self.widths[size]
        n, m = symbol("n"), symbol("m")
        for number, name in ((self.m + self.n, m + n), (self.m, m), (self.n, n)):
            if size and size % number == 0:
                return name * (self.of(size // number) if size != number else 1)
        return Expr.of(size)

    def numel(self, shape: Sequence[int]) -> Expr:
        """Elements of a tensor."""
        return math.prod((self.of(size) for size in shape), start=ONE)

    def is_edges(self, shape: Sequence[int]) -> bool:
        """Whether a tensor has a row for every edge."""
        return bool(shape) and shape[0] not in self.widths and "m" in self.of(shape[0]).symbols


def probe_sizes(widths: Iterable[int]) -> tuple[int, int]:
    """Vertices and edges that are not mistaken for one of these widths, nor for a multiple of it."""
    known = {width for width in widths if width > 0}

    def free(number: int) -> bool:
        return all(width % number for width in known)

    for n in _VERTICES:
        for m in _EDGES:
            if free(n) and free(m) and free(n + m):
                return n, m
    raise AssertionError("widths that are multiples of all primes at hand")


def probe_graph(
    n: int, m: int, num_features: int, *, edge_weight: bool, edge_features: int, dtype: torch.dtype
) -> Graph:
    """A directed graph without loops, in which no two vertices in a hundred have equal degrees by rule.

    In- and out-degrees differ, so that an index tells by its counts whether it holds sources or destinations.
    """
    draw = torch.Generator().manual_seed(1)
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    # Sources fall off in popularity, destinations do not.
    source = (torch.rand(8 * m, generator=draw).square() * n).long()
    target = torch.randint(n, (8 * m,), generator=draw)
    pairs = torch.unique((source * n + target)[source != target])
    pairs = pairs[~torch.isin(pairs, ring[0] * n + ring[1])]
    chosen = pairs[torch.randperm(len(pairs), generator=draw)[: m - n]]
    edges = torch.cat([ring, torch.stack([chosen // n, chosen % n])], 1)
    return Graph.from_edge_index(
        edges,
        num_nodes=n,
        x=torch.rand(n, num_features, dtype=dtype, generator=draw) - 0.5,
        edge_weight=torch.rand(m, dtype=dtype, generator=draw) + 0.5 if edge_weight else None,
        edge_attr=torch.rand(m, edge_features, dtype=dtype, generator=draw) if edge_features else None,
        name="the probe graph of the analysis",
    )
