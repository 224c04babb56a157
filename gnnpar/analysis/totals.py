"""`ModelCost`: work and depth of a whole model."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gnnpar.analysis.expr import ZERO, Expr, symbol
from gnnpar.analysis.layers import LayerCost
from gnnpar.analysis.models import cost_custom, cost_model
from gnnpar.config import ModelConfig
from gnnpar.graph import Graph
from gnnpar.model import Model
from gnnpar.model.flow import values_read

__all__ = ["ModelCost", "cost_of_model"]


@dataclass(frozen=True)
class ModelCost:
    """Costs of all layers and how they follow each other.

    Attributes:
        layers: in the order of `Model.all_layers()`.
        sources: of every layer those whose results it reads.
        values: of all symbols.
    """

    layers: tuple[LayerCost, ...]
    sources: tuple[tuple[int, ...], ...]
    values: Mapping[str, float]

    @property
    def forward(self) -> Expr:
        """Work of the forward pass."""
        return self.sum(layer.forward.total_work for layer in self.layers)

    @property
    def backward(self) -> Expr:
        """Work of the backward pass."""
        return self.sum(layer.backward.total_work for layer in self.layers)

    @property
    def work(self) -> Expr:
        """Work of one pass each way. The loss, O(tC), and the update, O(parameters), are left out."""
        return self.forward + self.backward

    @property
    def depth(self) -> Expr:
        """The longest chain forward, then the longest one back, to the last of the weights' gradients."""
        return self.sum((*self._forward_chain(), *self._backward_chain()))

    @property
    def parallelism(self) -> float:
        """W/D: how many processors could be kept busy on average."""
        return self.work.value(self.values) / self.depth.value(self.values)

    def sum(self, parts: Iterable[Expr]) -> Expr:
        """Of the layers' parts; what comes once in every graph layer stands as L times it."""
        total, count = ZERO, self.values["L"]
        for part, times in Multiset(parts).items():
            total = total + part * (symbol("L") if times == count > 1 else times)
        return total

    def on(self, sizes: Sequence[Mapping[str, Expr | float]], values: Mapping[str, float]) -> ModelCost:
        """The same layers on other numbers of rows and edges, one mapping of symbols a layer."""
        layers = tuple(
            replace(layer, forward=layer.forward.substitute(of), backward=layer.backward.substitute(of))
            for layer, of in zip(self.layers, sizes, strict=True)
        )
        return ModelCost(layers, self.sources, {**self.values, **values})

    def orders(self) -> list[str]:
        """Of every layer the order in the adjacency matrix of its global formulation, `` for row-wise ones.

        s C-GNN layers one after the other with nothing non-linear in them are a polynomial of order s (as SGC
        is). A rational form needs an inverse, which no layer that looks at one hop holds.
        """
        found = ["" if layer.role is None else layer.role.order for layer in self.layers]
        runs: list[list[int]] = [[]]
        for index, layer in enumerate(self.layers):
            joined = layer.linear and (layer.role is None or layer.role.name == "C-GNN")
            if not joined or self.sources[index] not in ((), (index - 1,)):
                runs.append([])
            if joined and layer.role is not None:
                runs[-1].append(index)
        for run in runs:
            for index in run if len(run) > 1 else ():
                found[index] = f"polynomial, {len(run)}"
        return found

    def levels(self) -> list[int]:
        """Of every layer, how many aggregations lie between its result and the model's."""
        found = [0] * len(self.layers)
        for index in reversed(range(len(self.layers))):
            for source in self.sources[index]:
                found[source] = max(found[source], found[index] + (self.layers[index].role is not None))
        return found

    def _forward_chain(self) -> list[Expr]:
        chains: list[tuple[float, list[Expr]]] = []
        for layer, sources in zip(self.layers, self.sources, strict=True):
            length, chain = max((chains[s] for s in sources), key=lambda one: one[0], default=(0.0, []))
            depth = layer.forward.total_depth
            chains.append((length + depth.value(self.values), [*chain, depth]))
        return max(chains, key=lambda one: one[0])[1]

    def _backward_chain(self) -> list[Expr]:
        entering: list[tuple[float, list[Expr]]] = [(0.0, [])] * len(self.layers)
        best: tuple[float, list[Expr]] = (0.0, [])
        for index in reversed(range(len(self.layers))):
            backward, (length, chain) = self.layers[index].backward, entering[index]
            through, weights = backward.total_depth, backward.weights
            for depth in (through, weights):
                reached = length + depth.value(self.values), [*chain, depth]
                best = max(best, reached, key=lambda one: one[0])
            passed = length + through.value(self.values), [*chain, through]
            for source in self.sources[index]:
                entering[source] = max(entering[source], passed, key=lambda one: one[0])
        return best[1]


def cost_of_model(model: Model | ModelConfig, graph: Graph) -> ModelCost:
    """Costs on `graph`: of a configuration with every width a symbol, of a model with its own widths.

    Raises:
        InputError: the model cannot run on such a graph, with the reasons.
    """
    if isinstance(model, ModelConfig):
        layers, values = cost_model(model, graph)
        sources: list[tuple[int, ...]] = [(i - 1,) if i else () for i in range(len(layers))]
    else:
        layers, values = cost_custom(model, graph)
        read = values_read(model.all_layers(), model.keeps)
        sources = [tuple(sorted({value.maker for value in of_layer})) for of_layer in read]
    return ModelCost(tuple(layers), tuple(sources), values)
