"""`ControlVariates`: sampled aggregation corrected by what all neighbours had in earlier steps (VR-GCN)."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnpar.batch import Batch, MiniBatch
from gnnpar.graph import Graph, kernels
from gnnpar.graph.block import Block
from gnnpar.graph.norm import PullScales

__all__ = ["ControlVariates"]


class ControlVariates:
    """The histories X̄ of one fixed linear aggregation, and the correction that they make.

        Z[r] = Σ over sampled edges w (X[u] - X̄[u]) + Σ over all edges a X̄[u]

    (Chen, Zhu and Song 2018, §4.2, eq. 5.) It is unbiased whatever X̄ is, with a variance that follows X - X̄:
    few sampled edges will do. Gradients flow through sampled X alone; self loops are exact. X̄ starts at zero,
    which is plain sampling. It holds what enters the aggregation, dropout and linear maps included (the paper
    keeps means apart from dropout: its CVD).

    All mini-batches of a step read what earlier steps left; of several that write a vertex the last by number
    stays: no order of work changes a result. Every copy of a stage has its own.

    Args:
        graph: that the batches are drawn from, whose in-edges are all edges.
        scales: of the operator on it.

    Memory: N · K, and the columns of a step's batches. Cost of a batch: a pass over all edges into its rows.
    """

    def __init__(self, graph: Graph, scales: PullScales) -> None:
        self.graph, self.scales = graph, scales
        self._rows: Tensor | None = None
        self._step = -1
        self._written: dict[MiniBatch, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def correct(self, z: Tensor, x: Tensor, batch: Batch, block: Block, step: int) -> Tensor:
        """What to add to the sampled Z `[R, ...]`: Σ over all edges a X̄[u] - Σ over sampled edges w X̄[u].

        Args:
            x: the cut of the block's columns `[M, ...]`.
        """
        rows = self._before(step, x)
        vertices = batch.vertices[: block.num_columns]
        own = vertices[: block.num_rows]
        scale = None if self.scales.r is None else self.scales.r[own]
        ends, edges = _edges_of(self.graph, own)
        weight = None if self.scales.weight is None else self.scales.weight[edges]
        known = rows.new_empty(block.num_rows, rows.shape[1])
        kernels.pull(ends, self.graph.indices[edges], rows, known, weight=weight, scale=scale)
        out = torch.empty_like(known)
        seen = rows.index_select(0, vertices)
        weight = block.edge_weight
        kernels.pull(
            block.indptr, block.columns, seen, out, weight=weight, scale=scale, residual=known, a=-1.0, b=1.0
        )
        return out.view_as(z)

    @torch.no_grad()
    def write(self, mini: MiniBatch, x: Tensor, batch: Batch, block: Block) -> None:
        """X̄ of the block's columns in the steps that follow."""
        vertices = batch.vertices[: block.num_columns]
        scale = None if self.scales.c is None else self.scales.c[vertices]
        flat = x.flatten(1)
        self._written[mini] = vertices, kernels.scale_rows(flat, scale, torch.empty_like(flat))

    def _before(self, step: int, like: Tensor) -> Tensor:
        """c ⊙ X̄ `[N, K]` as earlier steps left it."""
        if self._rows is None:
            self._rows = like.new_zeros(self.graph.num_nodes, like.flatten(1).shape[1])
        if step != self._step:
            self._settle()
            self._step = step
        return self._rows

    def _settle(self) -> None:
        for mini in sorted(self._written, key=lambda one: one.index):
            vertices, values = self._written[mini]
            assert self._rows is not None
            self._rows[vertices] = values
        self._written.clear()

    def state(self) -> Tensor | None:
        """c ⊙ X̄ `[N, K]`, in use, as the next step will read it; None before the first."""
        self._settle()
        return self._rows

    def load(self, rows: Tensor | None) -> None:
        """Put back what `state` gave."""
        self._written.clear()
        self._rows = None if rows is None else rows.clone()


def _edges_of(graph: Graph, rows: Tensor) -> tuple[Tensor, Tensor]:
    """`(ends [R + 1], edges)`: positions in the graph's CSR of all edges into some rows."""
    counts = graph.in_degree[rows]
    ends = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(counts, 0, out=ends[1:])
    start = torch.repeat_interleave(graph.indptr[rows] - ends[:-1], counts)
    return ends, start + torch.arange(start.numel(), device=rows.device)
