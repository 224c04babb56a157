"""Bytes of a training step in closed form, from graph, parts and order alone, without the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Volume", "halo_rows"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Volume:
    """What a step sends, all ranks together, in bytes of float32.

    A model of L layers of width K whose aggregations are fixed and linear, and whose payload between stages
    is h and a carry as wide (GCNII's h0).

    Attributes:
        num_nodes: N. num_layers: L. width: K.
        num_parameters: |θ|. num_tensors: how many tensors they are.
        stages: S. ways: W of each stage.
        rows: of cuts and of D that another way reads at one layer (see `halo_rows`).
    """

    num_nodes: int
    num_layers: int
    width: int
    num_parameters: int
    num_tensors: int
    stages: int
    ways: int
    rows: tuple[int, int] = (0, 0)

    def by_kind(self) -> dict[str, int]:
        """stage = 2 · (S - 1) · N · 2K · 4: rows of h and h0 and their gradients, over every boundary.
        halo = L · (rows of X + rows of D) · K · 4; with one chunk a way both are the mirrors R.
        weight = W (W - 1) · |θ| · 4: every way of a stage sends its gradients to every other one.
        control = W (W - 1) a tensor: whether it has a gradient."""
        copies = self.ways * (self.ways - 1)
        return {
            "stage": 2 * (self.stages - 1) * self.num_nodes * 2 * self.width * 4,
            "halo": self.num_layers * sum(self.rows) * self.width * 4,
            "weight": copies * self.num_parameters * 4,
            "control": copies * self.num_tensors,
        }


def halo_rows(
    sources: Ints, targets: Ints, chunk_of: Ints, place: Sequence[int], ways: int
) -> tuple[int, int]:
    """(row of X, way that reads it), and (row of D, way that reads it): how many pairs a layer has.

    X goes to every way with an edge out of the row, now or in the next step (as history). D goes to every way
    with an edge into it from a chunk that runs no later than the row's own (γ ≠ 0).

    Args:
        sources, targets: `[E]` edges. chunk_of: `[N]`.
        place: when each chunk runs, its slot in this step. Way w has C/W chunks from w · C/W on.
    """
    when, owner = np.asarray(place)[chunk_of], chunk_of * ways // len(place)
    crossing = owner[sources] != owner[targets]
    source, target = sources[crossing], targets[crossing]
    counted = when[source] <= when[target]
    forward = np.unique(source * ways + owner[target]).size
    backward = np.unique(target[counted] * ways + owner[source[counted]]).size
    return forward, backward
