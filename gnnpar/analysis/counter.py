"""`Counter`: watches what torch does on the probe graph, and adds up work, depth and what depends on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnpar.analysis.expr import ONE, ZERO, Expr, log2, symbol
from gnnpar.analysis.rules import GATHER, LINEAR, SCATTER, Cost, cost_of, name_of
from gnnpar.analysis.sizes import Sizes
from gnnpar.graph import Graph

__all__ = ["KERNELS", "PHASES", "Counter", "Fact", "Operation", "Path"]

Phase = Literal["scatter", "edge", "reduce", "vertex"]
Kernel = Literal["GEMM", "SpMM", "SDDMM", "edge softmax", "elementwise"]
PHASES: tuple[Phase, ...] = ("scatter", "edge", "reduce", "vertex")
"""Scatter (rows to edges), ψ (on edges), ⊕ (edges to rows), φ (on rows)."""
KERNELS: tuple[Kernel, ...] = ("GEMM", "SpMM", "SDDMM", "edge softmax", "elementwise")


@dataclass
class Operation:
    """One that was counted."""

    name: str
    phase: Phase
    kernel: Kernel
    work: Expr


@dataclass(frozen=True)
class Path:
    """The longest chain of operations that leads to a tensor.

    Attributes:
        length: with the sizes of the graph at hand, which decide what is longest.
        depth: the chain by phase.
    """

    length: float = 0.0
    depth: Mapping[Phase, Expr] = field(default_factory=dict)

    def then(self, phase: Phase, depth: Expr, values: Mapping[str, float]) -> Path:
        """One operation more."""
        grown = {**self.depth, phase: self.depth.get(phase, ZERO) + depth}
        return Path(self.length + depth.value(values), grown)

    @property
    def total(self) -> Expr:
        return sum(self.depth.values(), ZERO)


@dataclass(frozen=True)
class Fact:
    """What is known of a tensor's values.

    Attributes:
        features: they depend on the layer's input.
        ends: of a tensor on edges, the ends whose features they depend on: "source", "destination".
        soft: they come from an exponential, or a maximum, over edges.
        made: the operation that made them, its inputs and their shapes; None where it is not known.
    """

    features: bool = False
    ends: frozenset[str] = frozenset()
    soft: bool = False
    made: Operation | None = None
    inputs: tuple[tuple[Fact, tuple[int, ...]], ...] = ()


_NOTHING = Fact()


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs inside, forward or backward.

    Tensors are known by their storage, which views share.

    Args:
        graph: the probe graph.
        values: of all symbols, on the graph that the probe stands for.
    """

    def __init__(self, graph: Graph, sizes: Sizes, values: Mapping[str, float]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes, self.values = sizes, values
        self.operations: list[Operation] = []
        self.reductions: list[Fact] = []
        self.linear = True
        self.width = 1
        self._degrees = {"source": graph.out_degree, "destination": graph.in_degree}
        self._num_nodes = graph.num_nodes
        self._paths: dict[int, Path] = {}
        self._facts: dict[int, Fact] = {}
        self._held: list[Tensor] = []  # so that no storage is taken for an earlier one

    def start(self) -> None:
        """Begin a pass: everything there is stands ready."""
        self._paths.clear()
        self.operations = []

    def mark(self, tensors: Iterable[Tensor]) -> None:
        """These are the layer's inputs."""
        for tensor in tensors:
            self._facts[_key(tensor)] = Fact(features=True)
            self._held.append(tensor)

    def path(self, tensor: Tensor) -> Path:
        """The longest chain that leads to it."""
        return self._paths.get(_key(tensor), Path())

    def fact(self, tensor: Tensor) -> Fact:
        """What is known of it."""
        return self._facts.get(_key(tensor), _NOTHING)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = [*_tensors(args), *_tensors((kwargs or {}).values())]
        outputs = [t for t in _tensors([out]) if t.is_floating_point()]
        self._held += outputs
        if outputs:
            name = name_of(func)
            self._note(name, args, inputs, outputs, cost_of(name, args, outputs, self.sizes))
        return out

    def pull(self, x: Tensor, out: Tensor, scaled: int, weighted: bool, loops: bool) -> None:
        """Count a fixed linear aggregation of `x` `[n, …]`, which runs outside torch.

        Args:
            scaled: how many times all rows are scaled. weighted: every edge has a weight. loops: every row
                reads itself, too.
        """
        columns = self.sizes.numel(x.shape[1:])
        n, edges = symbol("n"), symbol("m")
        reads = edges + n if loops else edges
        path = self.path(x)
        steps: list[tuple[str, Phase, Kernel, Expr, Expr]] = [
            ("scale", "vertex", "elementwise", n * columns, ONE) for _ in range(scaled)
        ]
        steps.append(("pull", "scatter", "SpMM", reads * columns, ONE))
        if weighted:
            steps.append(("weigh", "edge", "SpMM", edges * columns, ONE))
        steps.append(("pull", "reduce", "SpMM", reads * columns, log2(symbol("d"))))
        for name, phase, kernel, work, depth in steps:
            self.operations.append(Operation(name, phase, kernel, work))
            path = path.then(phase, depth, self.values)
        self._paths[_key(out)] = path
        self._facts[_key(out)] = Fact(features=self.fact(x).features)
        self._held.append(out)

    def _note(
        self,
        name: str,
        args: Sequence[Any],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        cost: Cost | None,
    ) -> None:
        """Put down one operation: its cost, the chains to its outputs, what these depend on."""
        reals = [t for t in inputs if t.is_floating_point()]
        before = max((self.path(t) for t in reals), key=lambda path: path.length, default=Path())
        facts = [self.fact(t) for t in reals]
        on_edges = any(self.sizes.is_edges(t.shape) for t in reals)
        to_edges = any(self.sizes.is_edges(t.shape) for t in outputs)
        if any(fact.features for fact in facts) and not _is_linear(name, args, self.fact):
            self.linear = False
        if cost is None or (name in GATHER and on_edges == to_edges):
            if _key(outputs[0]) not in {_key(t) for t in reals}:
                merged = _merged(facts) if len(facts) != 1 else facts[0]
                for out in outputs:
                    self._paths[_key(out)], self._facts[_key(out)] = before, merged
            return
        phase: Phase = "vertex"
        if on_edges or to_edges:
            phase = "edge"
            if not on_edges:
                phase = "scatter"
            elif not to_edges and not cost.is_product:
                phase = "reduce"
        soft = phase != "vertex" and (name in ("exp", "scatter_reduce", "_softmax") or _soft(name, facts))
        operation = Operation(name, phase, "elementwise", cost.work + cost.beside)
        shapes = [tuple(t.shape) for t in reals]
        if phase != "vertex":
            per_edge = [t.numel() // t.shape[0] for t in (*reals, *outputs) if self.sizes.is_edges(t.shape)]
            operation.kernel = self._kernel(name, phase, per_edge, shapes, facts, soft, to_edges)
        if cost.is_product:
            self.operations.append(Operation(name, phase, "GEMM", cost.work))
            operation.work = cost.beside
        if operation.work:
            self.operations.append(operation)
        merged = _merged(facts)
        ends = merged.ends
        if phase == "scatter" and merged.features:
            ends = ends | self._role(name, args, inputs)
        if phase == "reduce" or not to_edges:
            ends = frozenset()
        for out, depth in zip(outputs, (*cost.depths, *[cost.depths[-1]] * len(outputs)), strict=False):
            known = tuple(zip(facts, shapes, strict=True))
            self._facts[_key(out)] = Fact(merged.features, ends, soft, operation, known)
            self._paths[_key(out)] = before.then(phase, depth, self.values)
        if phase == "reduce" and name in SCATTER:
            self.reductions.append(self._facts[_key(outputs[0])])

    def _kernel(
        self,
        name: str,
        phase: Phase,
        per_edge: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        facts: Sequence[Fact],
        soft: bool,
        to_edges: bool,
    ) -> Kernel:
        """What an operation on edges is a part of. Narrower than a row: a score; else a message."""
        widest = max(per_edge)
        if widest < self.width:
            return "edge softmax" if soft else "SDDMM"
        if phase in ("scatter", "reduce"):
            return "SpMM"
        if min(per_edge) < widest:
            if name == "mul":
                return "SpMM"
            for fact in facts:  # Σ over columns of a product of two rows
                if name == "sum" and fact.made is not None and fact.made.name == "mul":
                    fact.made.kernel = "SDDMM"
            return "SDDMM"
        return "elementwise"

    def _role(self, name: str, args: Sequence[Any], inputs: Sequence[Tensor]) -> frozenset[str]:
        """The end whose rows are gathered: an index holds every source, or destination, equally often."""
        indices = [t for t in inputs if not t.is_floating_point() and t.dtype != torch.bool and t.numel()]
        if not indices:
            return frozenset({"source", "destination"})
        index = indices[0]
        while index.dim() > 1:
            index = index.select(-1, 0) if index.shape[0] > index.shape[-1] else index.select(0, 0)
        counts = torch.bincount(index.long(), minlength=self._num_nodes)
        for end, degrees in self._degrees.items():
            if len(counts) == self._num_nodes and int((counts - degrees).max()) == int(
                (counts - degrees).min()
            ):
                return frozenset({end})
        return frozenset({"source", "destination"})


def _soft(name: str, facts: Sequence[Fact]) -> bool:
    """A gradient leaves the softmax where an operation looks at values from before it."""
    if "backward" in name:
        return len(facts) > 1 and facts[1].soft
    return any(fact.soft for fact in facts)


def _merged(facts: Sequence[Fact]) -> Fact:
    return Fact(
        any(fact.features for fact in facts),
        frozenset().union(*(fact.ends for fact in facts)),
        any(fact.soft for fact in facts),
    )


def _is_linear(name: str, args: Sequence[Any], fact: Any) -> bool:
    if name not in LINEAR:
        return False
    factors: list[bool] = [isinstance(a, Tensor) and fact(a).features for a in args]
    if name in ("mul", "mm", "bmm"):
        return sum(factors[:2]) < 2
    if name == "addmm":
        return sum(factors[1:3]) < 2
    return not (name == "div" and len(factors) > 1 and factors[1])


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
