"""The whole graph as one differentiable pass: aggregation with autograd, without chunks or histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnpar.graph import kernels
from gnnpar.graph.block import Block
from gnnpar.graph.graph import Graph
from gnnpar.graph.norm import PullScales, degrees, scales
from gnnpar.model.layer import Carries, Layer, Pull
from gnnpar.model.rows import Rows

__all__ = ["Aggregate", "WholeGraph", "apply_layer", "pull"]

Aggregate = Callable[[Layer, Tensor, Rows], Tensor]
"""A layer's cut `[N, K]` → its aggregate `[N, ...]`."""


class _Pull(torch.autograd.Function):
    """Z = r ⊙ (A + [loops] I)(c ⊙ X); the gradient is the same pull through the transposed CSR."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph, s: PullScales) -> Tensor:
        ctx.graph, ctx.scales = graph, s
        return _run(graph.indptr, graph.indices, s.weight, x, s.c, s.r, s.self_loops)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        s: PullScales = ctx.scales
        indptr, indices, edge = ctx.graph.transpose
        weight = None if s.weight is None else s.weight[edge]
        return _run(indptr, indices, weight, gradients[0], s.r, s.c, s.self_loops), None, None


def _run(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor | None,
    x: Tensor,
    inner: Tensor | None,
    outer: Tensor | None,
    self_loops: bool,
) -> Tensor:
    flat = x.reshape(len(x), -1).contiguous()
    if inner is not None:
        flat = kernels.scale_rows(flat, inner, torch.empty_like(flat))
    out = torch.empty_like(flat)
    kernels.pull(indptr, indices, flat, out, weight=weight, scale=outer, self_rows=0 if self_loops else None)
    return out.view(x.shape)


def pull(x: Tensor, graph: Graph, s: PullScales) -> Tensor:
    """Z = r ⊙ (A + [self_loops] I)(c ⊙ X), differentiable in X `[N, ...]`. Keeps nothing per edge."""
    result: Tensor = _Pull.apply(x, graph, s)  # type: ignore[no-untyped-call]
    return result


class WholeGraph:
    """Aggregates over all of one graph; scales and the block are made once.

    Args:
        dtype: of the cuts; that of the features where not given.
    """

    def __init__(self, graph: Graph, dtype: torch.dtype | None = None) -> None:
        self.graph, self.dtype = graph, dtype
        self._scales: dict[Pull, PullScales] = {}
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        """Every vertex a row and a column."""
        if self._block is None:
            graph = self.graph
            into, out_of = degrees(graph)
            self._block = Block(
                num_rows=graph.num_nodes,
                indptr=graph.indptr,
                columns=graph.indices.long(),
                row_ids=graph.node_ids,
                column_ids=graph.node_ids,
                in_degree=into,
                out_degree=out_of,
                edge_weight=graph.edge_weight,
                edge_attr=graph.edge_attr,
            )
        return self._block

    def __call__(self, layer: Layer, x: Tensor, rows: Rows) -> Tensor:
        operator = layer.operator
        if isinstance(operator, Pull):
            if operator not in self._scales:
                self._scales[operator] = scales(self.graph, operator, self.dtype)
            return pull(x, self.graph, self._scales[operator])
        return layer.aggregate(x, self.block, rows)


def apply_layer(
    layer: Layer, h: Any, carries: Carries, rows: Rows, aggregate: Aggregate
) -> tuple[Tensor, Carries]:
    """One layer on rows `h`: before, aggregation, after. Returns `h'` and the carries it wrote."""
    z = h
    if layer.operator is not None:
        z = aggregate(layer, layer.before(h, carries, rows), rows)
    result = layer.after(z, h, carries, rows)
    return result if isinstance(result, tuple) else (result, {})
