"""Scales of the fixed linear aggregations, from the degrees of the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from gnnpar.graph.graph import Graph

__all__ = ["FixedLinear", "PullScales", "degree_scales", "degrees", "scales"]


class FixedLinear(Protocol):
    """What a fixed linear aggregation says of itself (`gnnpar.model.layer.Pull`)."""

    @property
    def norm(self) -> Literal["sym", "mean", "sum"]: ...

    @property
    def self_loops(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class PullScales:
    """Z = r ⊙ (A + [self_loops] I)(c ⊙ X), row by row.

    Attributes:
        r, c: `[N]` of the destination and of the source; None where all ones.
        self_loops: every vertex also reads itself, with weight one.
        weight: `[E]` edge weights in CSR order, or None.
    """

    r: Tensor | None
    c: Tensor | None
    self_loops: bool
    weight: Tensor | None


def degrees(graph: Graph) -> tuple[Tensor, Tensor]:
    """In- and out-degree `[N]` of every vertex: sums of edge weights where the graph has them, else counts.

    This is what a `Block` carries for its columns. Cost: O(E).
    """
    if graph.edge_weight is None:
        return graph.in_degree, graph.out_degree
    zero = graph.edge_weight.new_zeros(graph.num_nodes)
    into = zero.index_add(0, graph.destinations, graph.edge_weight)
    return into, zero.index_add(0, graph.indices.long(), graph.edge_weight)


def scales(graph: Graph, pull: FixedLinear, dtype: torch.dtype | None = None) -> PullScales:
    """The scales of `pull` on `graph`.

    `sym` (Kipf and Welling 2017, eq. 2): r = c = d^-1/2; `mean`: r = 1/d; `sum`: none. d is the (weighted)
    in-degree, plus one with self loops, on both sides also of a directed graph. A vertex whose degree is
    not positive has scale 0.

    Args:
        dtype: of the scales; that of the features where not given.
    """
    if dtype is None:
        dtype = torch.get_default_dtype() if graph.x is None else graph.x.dtype
    weight = None if graph.edge_weight is None else graph.edge_weight.to(dtype)
    return PullScales(*degree_scales(degrees(graph)[0], pull, dtype), pull.self_loops, weight)


def degree_scales(
    degree: Tensor, pull: FixedLinear, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """r and c of `scales` `[n]` for vertices of these in-degrees; None where all ones."""
    if pull.norm == "sum":
        return None, None
    degree = degree.to(dtype) + float(pull.self_loops)
    scale = degree.pow(-0.5 if pull.norm == "sym" else -1.0)
    scale = torch.where(degree > 0, scale, torch.zeros_like(scale))
    return scale, scale if pull.norm == "sym" else None
