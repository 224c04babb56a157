"""What a reader hands over: a graph as its source has it, before the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gnnpar.graph.features import SparseRows

__all__ = ["RawGraph", "RowBlocks"]


@dataclass(frozen=True)
class RowBlocks:
    """Dense features `[N, F]` that are read block by block, so that they never need to fit in memory.

    Attributes:
        shape: (N, F). blocks: starts a new pass over consecutive row blocks `[n, F]`, N rows in all.
    """

    shape: tuple[int, int]
    blocks: Callable[[], Iterator[npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class RawGraph:
    """N vertices, E edges, S splits.

    Attributes:
        edge_index: `[2, E]` integers (source, destination), unchecked.
        x: `[N, F]` dense, sparse or in blocks; None where the source has none.
        y: `[N]` integer class, -1 = unlabelled; or `[N, T]` float multi-label, NaN = missing entry.
        masks: `train_mask`, `val_mask`, `test_mask`, each `[S, N]` bool; empty where the source has no split.
        num_classes: None = one more than the largest label.
        inverse_edges: the source stores each undirected edge once, so the recipe adds the reverse ones.
        edge_features_as_x: vertices have no features but the mean of their edges' (ogbn-proteins).
    """

    name: str
    num_nodes: int
    edge_index: Tensor
    y: Tensor
    x: Tensor | SparseRows | RowBlocks | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    num_classes: int | None = None
    edge_weight: Tensor | None = None
    edge_attr: Tensor | None = None
    inverse_edges: bool = False
    edge_features_as_x: bool = False
