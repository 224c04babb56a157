"""Sums and softmax over the in-edges of a block's rows, for push layers. E edges, R rows.

Sums run edge by edge in the given order, so that the number of threads changes no bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["edge_softmax", "edge_sum"]


def edge_sum(messages: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """`[E, ...]` → `[R, ...]`: Σ of the messages of each row's edges; `rows` `[E]` is an edge's row."""
    return messages.new_zeros(num_rows, *messages.shape[1:]).index_add(0, rows, messages)


def edge_softmax(scores: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """`[E, ...]` → `[E, ...]`: softmax over the edges of each row, in every other dimension alone."""
    with torch.no_grad():
        peak = scores.new_full((num_rows, *scores.shape[1:]), -torch.inf)
        index = rows.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
        peak.scatter_reduce_(0, index, scores, "amax")
    weight = (scores - peak.index_select(0, rows)).exp()
    return weight / edge_sum(weight, rows, num_rows).index_select(0, rows)
