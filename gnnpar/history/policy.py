"""`HistoryPolicy`: what a chunk reads for neighbours that have not run yet, and how old that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnpar.config.schema import RunConfig

__all__ = ["HistoryPolicy"]

Mode = Literal["latest", "snapshot", "drop"]


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """The history axis of a run.

    Attributes:
        mode: `latest` reads the last embedding computed (GAS), `snapshot` the one of the last snapshot
            (GNNPipe), `drop` leaves the edge out.
        period: P, steps between snapshots.
        gamma: factor γ on gradients that come from micro-batches computed later in the step; 1 is the exact
            gradient with histories held constant, 2 GNNPipe's compensation, 0 stops them (GAS).
        warmup_steps: w, steps run first as one exact slot. Where there are none, a refresh comes first.
        refresh_every: steps between refreshes, if there are any: exact forward passes that write histories.
        compensate: chunks outside a step send it the gradients of the step that they last ran in (LMC).
        steps_per_epoch: steps among which the chunks are dealt out.
    """

    mode: Mode
    period: int
    gamma: float
    warmup_steps: int
    refresh_every: int | None = None
    compensate: bool = False
    steps_per_epoch: int = 1

    @classmethod
    def of(cls, config: RunConfig) -> HistoryPolicy:
        """That of the configuration; independent micro-batches have no history and need no warm-up.

        Without a flush (`weights.policy`), all updates of an epoch are made in one step.
        """
        steps = config.batch.steps_per_epoch if config.weights.policy == "flush" else 1
        if config.batch.independent:
            return cls("drop", 1, 0.0, 0, steps_per_epoch=steps)
        history = config.history
        return cls(
            history.mode,
            history.period,
            history.gamma,
            history.warmup_steps,
            history.refresh_every,
            history.compensate,
            steps,
        )

    def is_exact(self, step: int) -> bool:
        """True for warm-up steps, which run all chunks as one slot."""
        return step < self.warmup_steps

    def epoch(self, step: int) -> tuple[int, int, int]:
        """Epoch, from 0, of a step; which of the epoch's steps it is; and how many these are (exact: 1)."""
        if self.is_exact(step):
            return step, 0, 1
        since, parts = step - self.warmup_steps, self.steps_per_epoch
        return self.warmup_steps + since // parts, since % parts, parts

    def refreshes(self, step: int) -> bool:
        """True where histories are written anew before the step."""
        since = step - self.warmup_steps
        if self.mode != "latest" or since < 0:
            return False
        if since == 0:
            return self.warmup_steps == 0
        return self.refresh_every is not None and since % self.refresh_every == 0

    def closes(self, step: int) -> bool:
        """True where a snapshot is taken at the end of the step: w - 1, w - 1 + P, …"""
        since = step - (self.warmup_steps - 1)
        return self.mode == "snapshot" and since >= 0 and since % self.period == 0

    def keeps(self, step: int) -> bool:
        """True where a later step will read rows of this one as history."""
        if self.mode == "latest":
            return step >= self.warmup_steps - 1
        return self.closes(step)

    def num_snapshots_before(self, step: int) -> int:
        """Snapshots taken by steps 0 … step - 1."""
        return max(0, (step - self.warmup_steps) // self.period + 1)

    def age(self, step: int) -> int:
        """Age in steps of what a historical read of this step returns, where every chunk runs in every step
        and none is refreshed; 0 where there are no such reads."""
        if self.is_exact(step) or self.mode == "drop":
            return 0
        if self.mode == "latest":
            return 1
        return (step - self.warmup_steps) % self.period + 1
