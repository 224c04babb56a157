"""Labels and loss of the last stage: one sum over the labelled vertices, divided once by their number."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph

__all__ = ["Targets"]


class Targets:
    """The training labels, chunk by chunk.

    The loss of a step is Σ over its labelled vertices ÷ their number (multi-label: labelled entries, missing
    ones excluded), whatever the chunks: never a mean of means. A chunk without a label contributes zero.
    """

    def __init__(self, chunked: ChunkedGraph, device: torch.device) -> None:
        graph = chunked.graph
        known = ~graph.y.isnan().all(1) if graph.multi_label else graph.y >= 0
        self.labelled = (graph.train_mask & known).to(device)
        self.y = graph.y.to(device)
        self.multi_label = graph.multi_label
        chosen = self.y[self.labelled]
        self.count = int((~chosen.isnan()).sum()) if graph.multi_label else chosen.shape[0]
        self._rows: dict[Chunk, Tensor] = {}

    def rows(self, chunk: Chunk) -> Tensor:
        """Labelled rows of a chunk, counted from its first row."""
        if chunk not in self._rows:
            self._rows[chunk] = self.labelled[chunk.start : chunk.stop].nonzero().squeeze(1)
        return self._rows[chunk]

    def loss(self, logits: Tensor, chunk: Chunk) -> Tensor:
        """The chunk's share of the step's loss, given the logits `[rows(chunk), num_classes]`."""
        labels = self.y[chunk.start + self.rows(chunk)]
        if self.multi_label:
            entries = ~labels.isnan()
            target = labels[entries].to(logits.dtype)
            total = F.binary_cross_entropy_with_logits(logits[entries], target, reduction="sum")
        else:
            total = F.cross_entropy(logits, labels, reduction="sum")
        return total / self.count
