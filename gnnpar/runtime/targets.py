"""Labels and loss: one sum over the labelled vertices, divided once by their number."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.graph import Graph

__all__ = ["Targets", "has_label", "summed_loss"]


def summed_loss(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Cross entropy summed over rows; of multi-label targets binary, summed over known entries.

    Args:
        logits: `[n, C]`.
        labels: `[n]` class, all known; or `[n, C]` in {0, 1}, NaN = missing.
        weight: `[n]`, of the rows; None: ones.
    """
    if labels.dim() == 2:
        known = ~labels.isnan()
        target = labels[known].to(logits.dtype)
        of_entries = None if weight is None else weight[:, None].expand_as(labels)[known]
        return F.binary_cross_entropy_with_logits(logits[known], target, of_entries, reduction="sum")
    if weight is None:
        return F.cross_entropy(logits, labels, reduction="sum")
    return F.cross_entropy(logits, labels, reduction="none") @ weight.to(logits.dtype)


def has_label(graph: Graph) -> Tensor:
    """`[N]` bool: vertices with a class, or with a known entry."""
    return ~graph.y.isnan().all(1) if graph.multi_label else graph.y >= 0


class Targets:
    """The training labels, chunk by chunk.

    The loss of a step is Σ over its labelled vertices ÷ their number (multi-label: labelled entries, missing
    ones excluded), whatever the chunks: never a mean of means. A chunk without a label contributes zero, and
    so does a step (see `Reads.normaliser`).
    """

    def __init__(self, chunked: ChunkedGraph, device: torch.device) -> None:
        graph = chunked.graph
        self.labelled = (graph.train_mask & has_label(graph)).to(device)
        self.y = graph.y.to(device)
        self._rows: dict[Chunk, Tensor] = {}

    def rows(self, chunk: Chunk) -> Tensor:
        """Labelled rows of a chunk, counted from its first row."""
        if chunk not in self._rows:
            self._rows[chunk] = self.labelled[chunk.start : chunk.stop].nonzero().squeeze(1)
        return self._rows[chunk]

    def loss(self, logits: Tensor, chunk: Chunk, normaliser: float) -> Tensor:
        """The chunk's share of the step's loss, given the logits `[rows(chunk), num_classes]`."""
        return summed_loss(logits, self.y[chunk.start + self.rows(chunk)]) / normaliser
