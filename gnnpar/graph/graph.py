"""`Graph`: a directed graph in CSR of in-edges, with features, labels and masks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gnnpar.graph.features import SparseRows

__all__ = ["Graph"]


@dataclass(frozen=True)
class Graph:
    """A graph ready for training. N vertices, E directed edges, F features, K edge features.

    Row v of the CSR lists the *sources* u of the edges u → v, ascending: what v aggregates.

    Attributes:
        indptr: `[N + 1]` int64.
        indices: `[E]` int32 (int64 where N does not fit), sources.
        x: `[N, F]` dense or `SparseRows`; None where a graph has no features.
        y: `[N]` int64 class, -1 = unlabelled; or `[N, T]` float multi-label in {0, 1}, NaN = missing entry.
        train_mask, val_mask, test_mask: `[N]` bool.
        num_classes: classes, or T for multi-label.
        edge_weight: `[E]` in CSR order, or None.
        edge_attr: `[E, K]` in CSR order, or None.
        node_ids: `[N]` int64, the vertex's id in the original numbering (keys dropout; survives renumbering).
        name: for messages and run names.
    """

    indptr: Tensor
    indices: Tensor
    x: Tensor | SparseRows | None
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    node_ids: Tensor
    edge_weight: Tensor | None = None
    edge_attr: Tensor | None = None
    name: str = "graph"

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def num_features(self) -> int:
        return 0 if self.x is None else self.x.shape[1]

    @property
    def multi_label(self) -> bool:
        return self.y.dim() == 2

    @cached_property
    def in_degree(self) -> Tensor:
        """`[N]` int64: number of in-edges (self loops counted only where stored)."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def out_degree(self) -> Tensor:
        """`[N]` int64: number of out-edges."""
        return torch.bincount(self.indices, minlength=self.num_nodes)

    @cached_property
    def destinations(self) -> Tensor:
        """`[E]` int64: the row of every edge, in CSR order."""
        return torch.repeat_interleave(torch.arange(self.num_nodes), self.in_degree)

    @cached_property
    def edge_index(self) -> Tensor:
        """`[2, E]` int64 (source, destination), as PyG writes it, in CSR order."""
        return torch.stack([self.indices.long(), self.destinations])

    @cached_property
    def transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """CSR of out-edges: `(indptr [N+1], destinations [E], edge [E])`, `edge` being positions in `indices`.

        Rows are ascending in the destination. Cost: one stable sort of E int32, kept.
        """
        edge = torch.sort(self.indices, stable=True).indices
        indptr = torch.zeros(self.num_nodes + 1, dtype=torch.int64)
        torch.cumsum(self.out_degree, 0, out=indptr[1:])
        return indptr, self.destinations[edge].to(self.indices.dtype), edge

    @cached_property
    def is_symmetric(self) -> bool:
        """True where every edge has its reverse (edge weights equal too, where there are any)."""
        indptr, destinations, edge = self.transpose
        same = torch.equal(indptr, self.indptr) and torch.equal(destinations, self.indices)
        if same and self.edge_weight is not None:
            same = torch.equal(self.edge_weight[edge], self.edge_weight)
        return same

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the structure (16 hex digits): partitions and histories are bound to it."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(self.indptr.numpy().tobytes())
        digest.update(self.indices.numpy().tobytes())
        return digest.hexdigest()

    def replace(self, **changes: Any) -> Graph:
        return replace(self, **changes)
