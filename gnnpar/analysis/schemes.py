"""An epoch under every training scheme: full batch, chunks, clusters, samples, subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gnnpar.analysis.expr import ONE, Expr, symbol
from gnnpar.analysis.totals import ModelCost

__all__ = ["Scheme", "schemes"]

Sizes = Mapping[str, Expr | float]


@dataclass(frozen=True)
class Scheme:
    """One epoch of a way to train.

    Attributes:
        kind: as `batch.kind` calls it, `full` for the whole graph.
        work: of an epoch. depth: of one step. steps: of an epoch.
        work_value, depth_value, steps_value: the same as numbers; rows and edges of a sample are at most the
            graph's.
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


def schemes(
    cost: ModelCost, *, seeds: int, fanout: int, inner_edges: int | None = None, steps: int = 1
) -> list[Scheme]:
    """The model's epoch under every scheme (Besta and Hoefler, §5, table of training schemes).

    Args:
        seeds: b, rows of a batch that carry loss.
        fanout: c, rows that one row of a sample reads, itself counted; of layer-wise sampling the rows of a
            layer, for the numbers b times the fan-out.
        inner_edges: edges inside the clusters, where they are known.
        steps: of an epoch on chunks or clusters.
    """
    values = cost.values
    inner = values["m"] if inner_edges is None else inner_edges
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
    clusters = cost.on([{"m": inner}] * len(cost.layers), {})
    return [
        whole,
        replace(
            whole,
            kind="chunks",
            title="chunks with history",
            steps_value=float(steps),
            note="order within a step is a choice",
        ),
        replace(
            whole,
            kind="clusters",
            title="clusters",
            work_value=clusters.work.value(values),
            steps_value=float(steps),
            note=f"partition first; {inner:,.0f} of {values['m']:,.0f} edges inside",
        ),
        _neighbours(cost, seeds, fanout),
        _layerwise(cost, seeds, fanout),
        _subgraphs(cost, seeds),
    ]


def _neighbours(cost: ModelCost, seeds: int, fanout: int) -> Scheme:
    """GraphSAGE: a layer that r aggregations separate from the result has b · c^r rows, and reads as many."""
    b, c = symbol("b"), symbol("c")
    reach = [
        level + (layer.role is not None) for level, layer in zip(cost.levels(), cost.layers, strict=True)
    ]
    formal = [_rows(b * c**r) | {"m": b * c**r, "t": b, "d": c} for r in reach]
    numbers = [_capped(cost, seeds * float(fanout) ** r, seeds, fanout) for r in reach]
    note = f"b={seeds}, c={fanout}"
    return _sampled(cost, "neighbour", "neighbour-sampled", formal, numbers, _epoch(cost, seeds), note)


def _layerwise(cost: ModelCost, seeds: int, fanout: int) -> Scheme:
    """FastGCN, LADIES: c rows a layer, with the edges among them at the graph's density."""
    n, m, b, c = (symbol(name) for name in "nmbc")
    width = min(float(seeds * fanout), cost.values["n"])
    edges = width**2 * cost.values["m"] / cost.values["n"] ** 2
    formal = [_rows(c) | {"m": m * c**2 * n**-2, "t": b, "d": c}] * len(cost.layers)
    numbers = [_capped(cost, width, seeds, width) | {"m": edges}] * len(cost.layers)
    note = f"b={seeds}, c={width:.0f}"
    return _sampled(cost, "layerwise", "layer-wise", formal, numbers, _epoch(cost, seeds), note)


def _subgraphs(cost: ModelCost, seeds: int) -> Scheme:
    """GraphSAINT: n/b subgraphs of b rows with all their edges, if the draws keep neighbours together."""
    values, n, m, t, b = cost.values, *(symbol(name) for name in "nmtb")
    rows = min(float(seeds), values["n"])
    part = rows / values["n"]
    formal = [_rows(b) | {"m": m * b * n**-1, "t": t * b * n**-1}] * len(cost.layers)
    numbers = [{name: values[name] * part for name in "nmtz"}] * len(cost.layers)
    steps = n * b**-1, values["n"] / rows
    note = f"b={seeds}; fewer edges, unless the draws keep neighbours together"
    return _sampled(cost, "saint", "subgraphs (SAINT)", formal, numbers, steps, note)


def _sampled(
    cost: ModelCost,
    kind: str,
    title: str,
    formal: Sequence[Sizes],
    numbers: Sequence[Sizes],
    epoch: tuple[Expr, float],
    note: str,
) -> Scheme:
    steps, count = epoch
    as_symbols, as_numbers = cost.on(formal, {"b": 1, "c": 2}), cost.on(numbers, {})
    work = as_numbers.work.value(cost.values) * count
    depth = as_numbers.depth.value(cost.values)
    return Scheme(kind, title, as_symbols.work * steps, as_symbols.depth, steps, work, depth, count, note)


def _epoch(cost: ModelCost, seeds: int) -> tuple[Expr, float]:
    """Steps that see every training vertex once."""
    return symbol("t") * symbol("b") ** -1, max(1.0, cost.values["t"] / seeds)


def _rows(count: Expr) -> dict[str, Expr | float]:
    """So many rows, with as many stored features each as the graph's have."""
    return {"n": count, "z": symbol("z") * count * symbol("n") ** -1}


def _capped(cost: ModelCost, rows: float, seeds: int, neighbours: float) -> dict[str, Expr | float]:
    """Numbers of rows, and as many edges, at most those of the graph."""
    values = cost.values
    return {
        "n": min(rows, values["n"]),
        "z": values["z"] * min(rows / values["n"], 1.0),
        "m": min(rows, values["m"]),
        "t": min(float(seeds), values["t"]),
        "d": min(float(neighbours), values["d"]),
    }
