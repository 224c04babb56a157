"""Accuracy, ROC-AUC and loss of logits on a mask. N vertices, C classes or labels.

Accuracy is kept as counts, which add up over chunks and ranks as means would not; ROC-AUC ranks all logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnpar.errors import InputError
from gnnpar.runtime.targets import summed_loss

__all__ = ["Counts", "count_correct", "mean_loss", "roc_auc", "score"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Correct predictions among `total` labelled ones. Counts of disjoint vertices add up."""

    correct: int
    total: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.correct + other.correct, self.total + other.total)

    @property
    def accuracy(self) -> float:
        """NaN where nothing is labelled."""
        return self.correct / self.total if self.total else math.nan


def score(logits: Tensor, y: Tensor, mask: Tensor, metric: str) -> float:
    """The metric on the masked vertices; NaN where none of them is labelled.

    Args:
        logits: `[N, C]`.
        y: `[N]` class, -1 = unlabelled; or `[N, C]` in {0, 1}, NaN = missing.
        mask: `[N]` bool.
        metric: "accuracy" or "rocauc".
    """
    if metric == "accuracy":
        return count_correct(logits, y, mask).accuracy
    if metric == "rocauc":
        return roc_auc(logits, y, mask)
    raise InputError("train.metric", [f"unknown {metric!r}; choose accuracy or rocauc"])


def mean_loss(logits: Tensor, y: Tensor, mask: Tensor) -> float:
    """Cross entropy per labelled vertex, or entry if multi-label, of the mask; NaN where there is none."""
    chosen = mask & (y >= 0) if y.dim() == 1 else mask
    labels = y[chosen]
    count = labels.shape[0] if y.dim() == 1 else int((~labels.isnan()).sum())
    return float(summed_loss(logits[chosen], labels)) / count if count else math.nan


def count_correct(logits: Tensor, y: Tensor, mask: Tensor) -> Counts:
    """Vertices whose largest logit is their class; for multi-label, entries of the right sign."""
    logits, y = logits[mask], y[mask]
    if y.dim() == 2:
        labelled = ~y.isnan()
        correct = ((logits > 0) == (y > 0.5)) & labelled
    else:
        labelled = y >= 0
        correct = (logits.argmax(1) == y) & labelled
    return Counts(int(correct.sum()), int(labelled.sum()))


def roc_auc(logits: Tensor, y: Tensor, mask: Tensor) -> float:
    """Area under the ROC curve, ties counted half: as scikit-learn's `roc_auc_score`.

    Two classes: of class 1. Multi-label: the mean over the labels that occur as 0 and as 1 in the masked
    vertices, missing entries left out (OGB's rule). NaN where there is no such label.

    Raises:
        InputError: more than two classes.
    """
    logits, y = logits[mask], y[mask]
    if y.dim() == 1:
        if logits.shape[1] > 2:
            cure = "use train.metric=accuracy"
            raise InputError("train.metric", [f"rocauc needs two classes or multi-label targets; {cure}"])
        difference = logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]
        logits = difference[:, None]
        y = torch.where(y < 0, math.nan, y.double())[:, None]
    areas = [_area(logits[:, t], y[:, t]) for t in range(y.shape[1])]
    known = [area for area in areas if not math.isnan(area)]
    return sum(known) / len(known) if known else math.nan


def _area(logit: Tensor, y: Tensor) -> float:
    """Mann-Whitney: from the sum of the positives' ranks, equal logits sharing their mean rank."""
    labelled = ~y.isnan()
    logit, positive = logit[labelled], y[labelled] > 0.5
    num_positive = int(positive.sum())
    num_negative = positive.numel() - num_positive
    if not num_positive or not num_negative:
        return math.nan
    _, group, size = torch.unique(logit, return_inverse=True, return_counts=True)
    rank = size.cumsum(0) - (size - 1) / 2.0
    excess = float(rank.double()[group[positive]].sum()) - num_positive * (num_positive + 1) / 2
    return excess / (num_positive * num_negative)
