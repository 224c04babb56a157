"""`Graph`: a directed graph in CSR of in-edges, with features, labels and masks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.errors import InputError
from gnnpar.graph import build
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

    def __repr__(self) -> str:
        sizes = f"{self.num_nodes} vertices, {self.num_edges} edges, {self.num_features} features"
        return (
            f"Graph({self.name}: {sizes}, {self.num_classes} {'labels' if self.multi_label else 'classes'})"
        )

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
        return torch.repeat_interleave(
            torch.arange(self.num_nodes, device=self.indptr.device), self.in_degree
        )

    @cached_property
    def edge_index(self) -> Tensor:
        """`[2, E]` int64 (source, destination), as PyG writes it, in CSR order."""
        return torch.stack([self.indices.long(), self.destinations])

    @cached_property
    def transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """CSR of out-edges: `(indptr [N+1], destinations [E], edge [E])`; `edge` indexes `indices`.

        Rows are ascending in the destination. Cost: one stable sort of E int32, kept.
        """
        edge = torch.sort(self.indices, stable=True).indices
        indptr = torch.zeros_like(self.indptr)
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
        digest.update(self.indptr.cpu().numpy().tobytes())
        digest.update(self.indices.cpu().numpy().tobytes())
        return digest.hexdigest()

    def replace(self, **changes: Any) -> Graph:
        return replace(self, **changes)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor | npt.ArrayLike,
        *,
        num_nodes: int | None = None,
        x: Tensor | SparseRows | None = None,
        y: Tensor | None = None,
        train_mask: Tensor | None = None,
        val_mask: Tensor | None = None,
        test_mask: Tensor | None = None,
        num_classes: int | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        coalesce: bool = True,
        name: str = "graph",
    ) -> Graph:
        """A graph from `edge_index` `[2, E]` (source, destination), as PyG writes it.

        Args:
            num_nodes: N; from `x`, `y` or the largest id where not given.
            y: classes or multi-labels; unlabelled where not given. Masks not given are all False.
            edge_weight, edge_attr: `[E]`, `[E, K]` in the order of `edge_index`.
            coalesce: make duplicate edges one, summing weights and features; otherwise they are kept.

        Raises:
            InputError: an edge outside `0..N-1`, or lengths that differ.

        Cost: one sort of E numbers.
        """
        edges = torch.as_tensor(edge_index)
        if edges.dim() != 2 or edges.shape[0] != 2 or edges.is_floating_point():
            raise InputError(
                name, [f"edge_index must be integers [2, E], got {tuple(edges.shape)} {edges.dtype}"]
            )
        if num_nodes is None:
            known = next((v.shape[0] for v in (x, y, train_mask) if v is not None), None)
            num_nodes = known if known is not None else int(edges.max()) + 1 if edges.numel() else 0
        outside = ((edges < 0) | (edges >= num_nodes)).any(0)
        faults = []
        if bool(outside.any()):
            first = int(outside.nonzero()[0])
            faults.append(
                f"edge_index: {int(outside.sum())} edges outside 0..{num_nodes - 1}, the first at position "
                f"{first}: {int(edges[0, first])} → {int(edges[1, first])}; "
                f"correct the ids or num_nodes={num_nodes}"
            )
        for key, value in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
            if value is not None and value.shape[0] != edges.shape[1]:
                faults.append(f"{key}: {value.shape[0]} rows, but edge_index has {edges.shape[1]} edges")
        if faults:
            raise InputError(name, faults)
        indptr, indices, (weight, attr) = build.edges_to_csr(
            edges[0].numpy(),
            edges[1].numpy(),
            num_nodes,
            (edge_weight, edge_attr),
            duplicates="sum" if coalesce else "keep",
        )
        if y is None:
            y = torch.full((num_nodes,), -1, dtype=torch.int64)
        elif y.dim() == 1:
            y = y.to(torch.int64)
        if num_classes is None:
            num_classes = y.shape[1] if y.dim() == 2 else int(y.max()) + 1 if y.numel() else 0
        masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
        none = torch.zeros(num_nodes, dtype=torch.bool)
        return cls(
            indptr=indptr,
            indices=indices,
            x=x,
            y=y,
            **{key: none if mask is None else mask.to(torch.bool) for key, mask in masks.items()},
            num_classes=num_classes,
            node_ids=torch.arange(num_nodes),
            edge_weight=weight,
            edge_attr=attr,
            name=name,
        )

    def symmetrize(self) -> Graph:
        """Every edge with its reverse, each once. See `gnnpar.graph.build.symmetrize`."""
        return build.symmetrize(self)

    def permute(self, order: Tensor) -> Graph:
        """Renumbered: new vertex i is old vertex `order[i]`, `[N]`. See `gnnpar.graph.build.permute`."""
        return build.permute(self, order)

    def to(self, device: torch.device | str) -> Graph:
        """The graph with all its tensors on `device`; itself where they are."""
        if self.indptr.device == torch.device(device):
            return self
        moved = {
            field.name: value.to(device)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), (Tensor, SparseRows))
        }
        return self.replace(**moved)

    def to_dtype(self, dtype: torch.dtype) -> Graph:
        """Features, edge weights, edge features and multi-labels in a floating-point `dtype`."""
        cast = {
            key: value.to(dtype=dtype)
            for key in ("x", "y", "edge_weight", "edge_attr")
            if (value := getattr(self, key)) is not None and value.dtype.is_floating_point
        }
        return self.replace(**cast)
