"""The class of a layer in the terms of Besta and Hoefler: C-GNN, A-GNN or MP-GNN, and its formulations.

Besta and Hoefler, "Parallel and Distributed Graph Neural Networks: An In-Depth Concurrency Analysis", §2 and
§4. Their classes go by ψ in h'_v = φ(h_v, ⊕_u ψ(h_v, h_u)); for layers that are not known it is read off the
operations that led to the aggregate:

* **C-GNN**: ψ is the source's row, or a constant of the edge times it.
* **A-GNN**: ψ is a scalar of the edge (or one a head) that depends on features, times the source's row.
* **MP-GNN**: ψ is any other vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnpar.analysis.counter import Fact
from gnnpar.analysis.rules import GATHER
from gnnpar.model import Layer, Pull

__all__ = ["LayerClass", "classify"]


@dataclass(frozen=True)
class LayerClass:
    """What is known of a layer's kind.

    Attributes:
        name: `C-GNN`, `A-GNN`, `MP-GNN` or `unknown`.
        formulation: `local` for all that can be told, and `global` where ⊕ and ψ are a product with a matrix.
        order: in the adjacency matrix: `linear`, as one layer is, or `unknown`; `-` where there is no global
            form. A run of layers without anything non-linear is a polynomial (see `orders`).
        scores_from: for an A-GNN the ends whose features its scalars depend on.
    """

    name: str
    formulation: str
    order: str
    scores_from: tuple[str, ...] = ()


def classify(layer: Layer, reductions: Sequence[Fact]) -> LayerClass | None:
    """The class of a layer, from the sums over edges that were seen; None for a row-wise layer."""
    if layer.operator is None:
        return None
    if isinstance(layer.operator, Pull):
        return LayerClass("C-GNN", "local, global", "linear")
    sums = [one for one in reductions if one.features and _width(one) == _widest(reductions)]
    if not sums:
        return LayerClass("unknown", "unknown", "unknown")
    name, ends = _message(*_message_of(sums[-1]))
    if name == "MP-GNN":
        return LayerClass(name, "local", "-")
    return LayerClass(name, "local, global", "linear", tuple(sorted(ends, reverse=True)))


def _message_of(reduction: Fact) -> tuple[Fact, tuple[int, ...]]:
    """What was summed: the input with the most elements."""
    return max(reduction.inputs, key=lambda pair: (pair[0].features, len(pair[1]), pair[1][:1]))


def _message(fact: Fact, shape: tuple[int, ...]) -> tuple[str, frozenset[str]]:
    """Class and scores' ends of what led to one message an edge."""
    if fact.made is None:
        return "MP-GNN", frozenset()
    if fact.made.name in GATHER:
        return ("C-GNN", frozenset()) if fact.ends == {"source"} else ("MP-GNN", frozenset())
    if fact.made.name != "mul":
        return "MP-GNN", frozenset()
    changing = [(f, s) for f, s in fact.inputs if f.features]
    if len(changing) == 1:
        return _message(*changing[0])
    (a, of_a), (b, of_b) = changing
    vector, score = ((a, of_a), (b, of_b)) if _columns(of_a) > _columns(of_b) else ((b, of_b), (a, of_a))
    if _columns(vector[1]) == _columns(score[1]):
        return "MP-GNN", frozenset()
    name, _ = _message(*vector)
    return ("A-GNN", score[0].ends) if name == "C-GNN" else ("MP-GNN", frozenset())


def _columns(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape[1:]:
        count *= size
    return count


def _width(reduction: Fact) -> int:
    return _columns(_message_of(reduction)[1])


def _widest(reductions: Sequence[Fact]) -> int:
    return max((_width(one) for one in reductions if one.features), default=0)
