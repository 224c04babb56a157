"""Work and depth of every layer of a model, by running it once, forward and backward, on a probe graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from gnnpar.analysis.counter import Counter, Kernel, Operation, Path, Phase
from gnnpar.analysis.expr import ZERO, Expr, symbol
from gnnpar.analysis.kinds import LayerClass, classify
from gnnpar.analysis.sizes import Sizes, probe_graph, probe_sizes
from gnnpar.graph import Graph, SparseRows
from gnnpar.model import Layer, Model, Pull
from gnnpar.model.adapters import Foreign
from gnnpar.model.layer import FEATURES
from gnnpar.model.rows import Rows
from gnnpar.model.whole import WholeGraph, apply_layer

__all__ = ["LayerCost", "Pass", "cost_layers"]


@dataclass(frozen=True)
class Pass:
    """One layer, forward or backward.

    Attributes:
        work: by phase and kernel.
        depth: of the chain from what enters to what leaves, by phase.
        weights: depth of the chain to the last of the parameters' gradients (backward only).
    """

    work: Mapping[tuple[Phase, Kernel], Expr]
    depth: Mapping[Phase, Expr]
    weights: Expr = ZERO

    @property
    def total_work(self) -> Expr:
        return sum(self.work.values(), ZERO)

    @property
    def total_depth(self) -> Expr:
        return sum(self.depth.values(), ZERO)

    def by_phase(self, phase: Phase) -> Expr:
        """Work of one phase."""
        return sum((work for (p, _), work in self.work.items() if p == phase), ZERO)

    def by_kernel(self, kernel: Kernel) -> Expr:
        """Work of one kernel."""
        return sum((work for (_, k), work in self.work.items() if k == kernel), ZERO)

    def substitute(self, replacements: Mapping[str, Expr | float]) -> Pass:
        """The same for other sizes."""
        return Pass(
            {key: work.substitute(replacements) for key, work in self.work.items()},
            {key: depth.substitute(replacements) for key, depth in self.depth.items()},
            self.weights.substitute(replacements),
        )


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs.

    Attributes:
        name: prefix of its parameters' names. kind: its class.
        role: what the Besta-Hoefler terms say of it; None for a row-wise layer.
        linear: nothing in the layer is non-linear in what enters.
        saved: elements that the backward pass needs of the forward pass, Z and the layer's input left out.
    """

    name: str
    kind: str
    forward: Pass
    backward: Pass
    role: LayerClass | None
    linear: bool
    saved: Expr

    @property
    def work(self) -> Expr:
        return self.forward.total_work + self.backward.total_work

    def alike(self, other: LayerCost) -> bool:
        """Whether all but the name is the same."""
        return replace(self, name=other.name) == other


def cost_layers(
    model: Model, graph: Graph, widths: Mapping[int, Expr], values: Mapping[str, float]
) -> list[LayerCost]:
    """Costs of every layer of `model.all_layers()`.

    Args:
        model: its parameters' gradients are left alone.
        graph: what the costs are for: weights, edge features and sparse features count as it has them.
        widths: names of widths.
        values: of all symbols on `graph`.
    """
    layers = model.all_layers()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    num_features = next((size for size, name in widths.items() if name == symbol("F")), graph.num_features)
    edge_features = int(values.get("e", 0))
    every = {*widths, *(size for p in model.parameters() for size in p.shape), num_features, edge_features}
    n, m = probe_sizes(every)
    known = dict(widths)
    if edge_features > 2:
        known.setdefault(edge_features, symbol("e"))
    sizes = Sizes(n, m, known)
    probe = probe_graph(
        n,
        m,
        num_features,
        edge_weight=graph.edge_weight is not None,
        edge_features=edge_features,
        dtype=dtype,
    )
    counter = Counter(probe, sizes, values)
    whole = WholeGraph(probe, dtype)
    h: Any = probe.x
    carries: dict[str, Any] = {FEATURES: h}
    found = []
    for index, (name, layer) in enumerate(zip(model.layer_names(), layers, strict=True)):
        cost, h, written = _run(counter, whole, name, layer, index, h, dict(carries))
        carries.update(written)
        if index in model.keeps:
            carries[model.keeps[index]] = h
        found.append(cost)
    if layers[-1].operator is None and not layers[-1].chunk_dependent:
        found[-1] = _with(found[-1], {"n": symbol("t")})  # training decodes labelled rows only
    if isinstance(graph.x, SparseRows):
        found = [_sparse(cost) for cost in found]
    return found


def _run(
    counter: Counter, whole: WholeGraph, name: str, layer: Layer, index: int, h: Any, carries: dict[str, Any]
) -> tuple[LayerCost, Tensor, dict[str, Tensor]]:
    """One layer forward and backward; its cost, and what it made, cut off from its inputs."""
    leaves = {key: _leaf(t) for key, t in carries.items() if key in layer.reads}
    entered = _leaf(h)
    rows = _CountedRows(whole.graph.node_ids, 0, 0, index, training=True, recomputing=True)
    aggregate = _Aggregate(counter, whole)
    saved: dict[int, Tensor] = {}
    counter.reductions, counter.linear, counter.width = [], True, 1
    inputs = [*leaves.values(), entered]
    with torch.enable_grad():
        counter.start()
        counter.mark(inputs)
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: _keep(saved, t), lambda t: t)
        with counter, hooks:
            out, written = apply_layer(layer, entered, leaves, rows, aggregate)
        outputs = [t for t in (out, *written.values()) if t.requires_grad]
        forward = _pass(counter.operations, _longest(counter.path(t) for t in (out, *written.values())))
        wanted = [t for t in inputs if t.requires_grad]
        parameters = [p for p in layer.parameters() if p.requires_grad]
        gradients = [torch.ones_like(t) for t in outputs]
        counter.start()
        with counter:
            back = (
                torch.autograd.grad(outputs, [*wanted, *parameters], gradients, allow_unused=True)
                if outputs
                else ()
            )
    through = _longest(counter.path(t) for t in back[: len(wanted)] if t is not None)
    weights = _longest(counter.path(t) for t in back[len(wanted) :] if t is not None)
    backward = replace(_pass(counter.operations, through), weights=weights.total)
    role = classify(layer, aggregate.reductions)
    linear = aggregate.linear and counter.linear
    left_out = {
        _storage(t)
        for t in (*inputs, *layer.parameters(), *([aggregate.z] if aggregate.z is not None else []))
    }
    kept = sum((counter.sizes.numel(t.shape) for key, t in saved.items() if key not in left_out), ZERO)
    cost = LayerCost(name, _kind(layer), forward, backward, role, linear, kept)
    return cost, _cut_off(out), {key: _cut_off(t) for key, t in written.items()}


class _CountedRows(Rows):
    """Rows whose dropout is a product with a mask (the mask's hash is not counted)."""

    def dropout(self, x: Tensor, p: float, site: int = 0) -> Tensor:
        return x * 1.0 if p > 0.0 else x

    def relu_dropout(self, x: Tensor, p: float, site: int = 0) -> Tensor:
        return self.dropout(x.relu(), p, site)


class _Aggregate:
    """Aggregates on the probe graph, and notes what the aggregation was made of."""

    def __init__(self, counter: Counter, whole: WholeGraph) -> None:
        self.counter, self.whole = counter, whole
        self.reductions: list[Any] = []
        self.linear = True
        self.z: Tensor | None = None

    def __call__(self, layer: Layer, x: Tensor, rows: Rows) -> Tensor:
        counter, operator = self.counter, layer.operator
        counter.width = x[0].numel()
        counter.reductions = []
        if isinstance(operator, Pull):
            scaled = {"sym": 2, "mean": 1, "sum": 0}[operator.norm]
            weighted = self.whole.graph.edge_weight is not None
            self.z = cast(Tensor, _Pull.apply(x, counter, scaled, weighted, operator.self_loops))  # type: ignore[no-untyped-call]
            return self.z
        # The rows of the cut enter anew, as they do in training.
        self.linear = counter.linear
        counter.linear = True
        counter.mark([x])
        self.z = layer.aggregate(x, self.whole.block, rows)
        self.reductions = list(counter.reductions)
        return self.z


class _Pull(torch.autograd.Function):
    """Stands for a fixed linear aggregation: kernels outside torch would not be seen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counter: Counter, scaled: int, weighted: bool, loops: bool) -> Tensor:
        ctx.how = counter, scaled, weighted, loops
        out = x.clone()
        counter.pull(x, out, scaled, weighted, loops)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        counter, scaled, weighted, loops = ctx.how
        out = gradients[0].clone()
        counter.pull(gradients[0], out, scaled, weighted, loops)
        return out, None, None, None, None


def _pass(operations: Sequence[Operation], path: Path) -> Pass:
    work: dict[tuple[Phase, Kernel], Expr] = {}
    for one in operations:
        key = one.phase, one.kernel
        work[key] = work.get(key, ZERO) + one.work
    return Pass({key: total for key, total in work.items() if total}, dict(path.depth))


def _longest(paths: Iterable[Path]) -> Path:
    return max(paths, key=lambda path: path.length, default=Path())


def _with(cost: LayerCost, replacements: Mapping[str, Expr | float]) -> LayerCost:
    forward, backward = cost.forward.substitute(replacements), cost.backward.substitute(replacements)
    return replace(cost, forward=forward, backward=backward, saved=cost.saved.substitute(replacements))


def _sparse(cost: LayerCost) -> LayerCost:
    """Rows of features of which only z numbers are stored: what would touch nF touches these."""

    def stored(expr: Expr) -> Expr:
        total = ZERO
        for monomial, coefficient in expr.terms.items():
            powers = dict(monomial)
            if powers.get("n") == 1 and powers.get("F") == 1:
                rest = tuple(sorted({**{s: e for s, e in monomial if s not in "nF"}, "z": 1}.items()))
                total = total + Expr({rest: coefficient})
            else:
                total = total + Expr({monomial: coefficient})
        return total

    def of(one: Pass) -> Pass:
        return replace(one, work={key: stored(work) for key, work in one.work.items()})

    return replace(cost, forward=of(cost.forward), backward=of(cost.backward), saved=stored(cost.saved))


def _leaf(t: Tensor) -> Tensor:
    """A tensor to differentiate by, unless nothing that is trained led to it (as to the features)."""
    return t.detach().clone().requires_grad_(t.requires_grad)


def _cut_off(t: Tensor) -> Tensor:
    return t.detach().requires_grad_(t.requires_grad)


def _keep(saved: dict[int, Tensor], t: Tensor) -> Tensor:
    if t.is_floating_point():
        saved.setdefault(_storage(t), t)
    return t


def _storage(t: Tensor) -> int:
    return int(t.untyped_storage()._cdata)


def _kind(layer: nn.Module) -> str:
    """Class of a layer and of the layer inside, if any: `PreActivation(GEN)`."""
    if isinstance(layer, Foreign):
        return type(layer.foreign).__name__
    inside = [_kind(child) for child in layer.children() if isinstance(child, Layer)]
    return f"{type(layer).__name__}({', '.join(inside)})" if inside else type(layer).__name__
