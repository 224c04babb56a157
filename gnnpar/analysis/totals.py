"""`ModelCost`: work and depth of a whole model, and of one epoch under every training scheme."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gnnpar.analysis.expr import ONE, ZERO, Expr, symbol
from gnnpar.analysis.layers import LayerCost
from gnnpar.analysis.models import cost_custom, cost_model
from gnnpar.config import ModelConfig
from gnnpar.graph import Graph
from gnnpar.model import Model
from gnnpar.model.flow import values_read

__all__ = ["ModelCost", "Scheme", "cost_of_model", "schemes"]


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


@dataclass(frozen=True)
class Scheme:
    """One epoch of a way to train.

    Attributes:
        kind: as `batch.kind` calls it, `full` for the whole graph.
        work: of an epoch. depth: of one step. steps: of an epoch.
        work_value, depth_value: the same as numbers; rows and edges of a sample are at most the graph's.
        note: what else there is.
    """

    kind: str
    title: str
    work: Expr
    depth: Expr
    steps: Expr
    work_value: float
    depth_value: float
    steps_value: float
    note: str = ""

    @property
    def parallelism(self) -> float:
        """Work of one step over its depth."""
        return self.work_value / self.steps_value / self.depth_value


def schemes(cost: ModelCost, *, seeds: int, fanout: int, inner_edges: int | None = None) -> list[Scheme]:
    """The model's epoch under every scheme (Besta and Hoefler, §5, table of training schemes).

    Args:
        seeds: b, rows of a batch that carry loss.
        fanout: c: rows that one row of a sample reads, itself counted; of layer-wise sampling the rows of a
            layer, which are taken to be as many as b · c.
        inner_edges: edges inside the clusters, where they are known.
    """
    values = cost.values
    n, m, t, b, c = (symbol(name) for name in "nmtbc")
    given = {"b": seeds, "c": fanout}
    epoch = t * b**-1, max(1.0, values["t"] / seeds)
    whole = Scheme(
        "full",
        "full batch",
        cost.work,
        cost.depth,
        ONE,
        cost.work.value(values),
        cost.depth.value(values),
        1.0,
    )
    inner = values["m"] if inner_edges is None else inner_edges
    levels = cost.levels()
    is_graph = [layer.role is not None for layer in cost.layers]
    reach = [level + aggregates for level, aggregates in zip(levels, is_graph, strict=True)]
    sampled = cost.on(
        [{"n": b * c**r, "m": b * c**r, "t": b, "d": c} for r in reach],
        given,
    )
    capped = _capped(cost, [(seeds * float(fanout) ** r,) * 2 for r in reach], seeds, fanout)
    per_layer = {"n": c, "m": m * c**2 * n**-2, "t": b, "d": c}
    width = min(seeds * fanout, values["n"])
    of_layer = cost.on([per_layer] * len(cost.layers), {"b": seeds, "c": width})
    density = values["m"] / values["n"] ** 2
    layer_capped = _capped(cost, [(width, width * width * density)] * len(cost.layers), seeds, width)
    clusters = cost.on([{"m": inner}] * len(cost.layers), {})
    return [
        whole,
        replace(whole, kind="chunks", title="chunks with history", note="order is a choice"),
        replace(
            whole,
            kind="clusters",
            title="clusters",
            work_value=clusters.work.value(values),
            note=f"partition first; {inner:,.0f} of {values['m']:,.0f} edges inside",
        ),
        _sampled("neighbour", "neighbour-sampled", sampled, capped, epoch, f"b={seeds}, c={fanout}"),
        _sampled("layerwise", "layer-wise", of_layer, layer_capped, epoch, f"b={seeds}, c={width:g}"),
        _subgraphs(cost, seeds),
    ]


def _sampled(
    kind: str, title: str, formal: ModelCost, number: ModelCost, epoch: tuple[Expr, float], note: str
) -> Scheme:
    steps, steps_value = epoch
    work = number.work.value(number.values) * steps_value
    depth = number.depth.value(number.values)
    return Scheme(kind, title, formal.work * steps, formal.depth, steps, work, depth, steps_value, note)


def _subgraphs(cost: ModelCost, seeds: int) -> Scheme:
    """GraphSAINT: s = n/b subgraphs of b rows, with the edges among them at the graph's density."""
    values, n, m, b = cost.values, symbol("n"), symbol("m"), symbol("b")
    share = b * n**-1
    formal = cost.on([{"n": b, "m": m * share, "t": symbol("t") * share}] * len(cost.layers), {"b": seeds})
    steps_value = max(1.0, values["n"] / seeds)
    rows = min(float(seeds), values["n"])
    number = cost.on(
        [{"n": rows, "m": values["m"] * rows / values["n"], "t": values["t"] * rows / values["n"]}]
        * len(cost.layers),
        {},
    )
    note = f"b={seeds}; at most {rows / values['n']:.0%} of a row's edges, unless the draws keep together"
    return _sampled("saint", "subgraphs (SAINT)", formal, number, (n * b**-1, steps_value), note)


def _capped(
    cost: ModelCost, sizes: Sequence[tuple[float, float]], seeds: int, neighbours: float
) -> ModelCost:
    """Numbers of rows and edges, at most those of the graph."""
    values = cost.values
    of = [
        {
            "n": min(rows, values["n"]),
            "m": min(edges, values["m"]),
            "t": min(float(seeds), values["t"]),
            "d": min(neighbours, values["d"]),
        }
        for rows, edges in sizes
    ]
    return cost.on(of, {})
