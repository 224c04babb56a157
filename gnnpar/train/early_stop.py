"""`EarlyStop`: the best validation score so far, and whether waiting for a better one has lasted too long."""

from __future__ import annotations

import math

__all__ = ["EarlyStop"]


class EarlyStop:
    """Fed with every validation score, in order.

    Where the graph has no validation vertices the score is NaN: then the latest epoch counts as the best, and
    nothing stops early.

    Attributes:
        patience: epochs without a better score after which to stop; None: never.
        best: highest score so far; NaN before there is one.
        best_epoch: the first epoch that had it; 0 before there is one.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.best = math.nan
        self.best_epoch = 0
        self._last_epoch = 0

    def update(self, epoch: int, score: float) -> bool:
        """Take note of the score of `epoch`; whether it is the best."""
        self._last_epoch = epoch
        better = math.isnan(self.best) or score > self.best
        if better:
            self.best = score
            self.best_epoch = epoch
        return better

    def should_stop(self, epoch: int) -> bool:
        """Whether `epoch`, just finished, was evaluated and is `patience` epochs after the best one.

        Between evaluations nothing is known, so nothing stops: patience may be shorter than their interval.
        """
        evaluated = epoch == self._last_epoch
        return self.patience is not None and evaluated and epoch - self.best_epoch >= self.patience
