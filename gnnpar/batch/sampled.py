"""What every sampler takes and gives: a key, and a batch that layers can run on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from gnnpar.graph.block import Block
from gnnpar.graph.kernels.keys import DropoutKey

__all__ = ["Batch", "BatchKey", "Sampler"]

_DOMAIN = 0x5A3B_1E5A_3B1E
"""Keeps the draws of a sampler apart from the dropout masks of the same seed."""


@dataclass(frozen=True, slots=True)
class BatchKey:
    """All that a batch depends on besides graph, sampler and seeds: with it, it can be made again anywhere.

    Attributes:
        seed: of the run. epoch: counts passes over the seeds. batch: number of the batch in its epoch.
    """

    seed: int
    epoch: int
    batch: int

    def words(self, stream: int) -> tuple[int, int]:
        """Two 32-bit words for one of the batch's independent streams of draws (a hop, a layer)."""
        return DropoutKey(self.seed ^ _DOMAIN, self.epoch, self.batch, stream).words()


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch: what each layer reads, and whose outputs carry loss.

    The rows of a block are its first columns, and the columns of a block are the rows of the block before it;
    so one list of vertices serves all: column i of any block, and row i of any output, is `vertices[i]`.

    `edge_weight` of a block is the graph's own (one where it has none) divided by how often the edge is
    expected in the row; with the degrees of the whole graph an aggregation is then an unbiased estimate of
    the full one, whatever its normalisation (for `mean`, the mean over the sampled neighbours). None:
    nothing was left out, or the subgraph stands for itself (clusters, egos: their blocks then carry its own
    degrees).

    Attributes:
        key: what the batch was made from.
        vertices: `[M]` int64 rows of the graph: columns of the first block, whose features are read.
        blocks: one a layer, the first layer first; or a single one that all layers share.
        edge_ids: for each block `[E_b]` int64 positions in the graph's CSR.
        targets: `[B]` int64 rows of the last output that carry loss.
        loss_weight: `[B]`, so that Σ weight · loss estimates the *mean* loss over the sampler's index set;
            None: the targets count alike, and a step divides by their number.
    """

    key: BatchKey
    vertices: Tensor
    blocks: tuple[Block, ...]
    edge_ids: tuple[Tensor, ...]
    targets: Tensor
    loss_weight: Tensor | None = None

    def block(self, layer: int) -> Block:
        """What a layer, counted from the input (or from the end, if negative), reads."""
        return self.blocks[layer] if len(self.blocks) > 1 else self.blocks[0]

    def num_rows(self, ahead: int) -> int:
        """Rows that there are when so many aggregations are still ahead; 0: rows of the output."""
        return self.block(-ahead).num_columns if ahead else self.blocks[-1].num_rows

    def to(self, device: torch.device) -> Batch:
        """The batch with all its tensors on `device`; itself where they are."""
        if self.vertices.device == device:
            return self
        return replace(
            self,
            vertices=self.vertices.to(device),
            blocks=tuple(block.to(device) for block in self.blocks),
            targets=self.targets.to(device),
            loss_weight=None if self.loss_weight is None else self.loss_weight.to(device),
        )

    @property
    def target_vertices(self) -> Tensor:
        """`[B]` int64 rows of the graph that carry loss."""
        return self.vertices[self.targets]


class Sampler(Protocol):
    """Makes batches. Samplers keep no state between batches and may be called by several threads at once."""

    @property
    def num_units(self) -> int:
        """Seeds are numbers below it: of vertices, of clusters, or of draws."""
        ...

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """The batch of some seeds `[n]` (none: a batch without rows). A function of its arguments alone.

        Raises:
            InputError: seeds that are not integers in `0..num_units-1`.
        """
        ...
