"""One step of independent mini-batches: which there are, and those that this process runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnnpar.batch.sampled import Batch

__all__ = ["Mini", "MiniBatch", "SampledStep"]


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """A mini-batch by its place in the step: of those of other processes nothing else is known."""

    index: int

    def __str__(self) -> str:
        return f"mini-batch {self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class Mini:
    """What a process has of a mini-batch that it runs.

    Attributes:
        batch: its structure; of the layers of earlier stages, blocks may be missing.
        share: what its summed (weighted) loss is multiplied by in the loss of the step.
    """

    batch: Batch
    share: float


@dataclass(frozen=True, eq=False)
class SampledStep:
    """The mini-batches of one step. They have nothing to read of each other, nor of earlier steps.

    Attributes:
        slots: of every micro-batch of the schedule its mini-batches, one (or more) for every replica.
        minis: of those that this process runs.
        normaliser: what the step's loss is the mean over: labelled entries, or draws (GraphSAINT).
    """

    slots: tuple[tuple[MiniBatch, ...], ...]
    minis: Mapping[MiniBatch, Mini]
    normaliser: float = 1.0
    exact: bool = False
    kept: bool = False
    age: float = 0.0
    age_max: int = 0
    history_share: float = 0.0
    num_reads: int = 0
    num_updates: int = 1

    @property
    def labelled(self) -> bool:
        """Whether anybody carries loss."""
        return self.normaliser > 0

    def of(self, replica: int) -> SampledStep:
        """The same for the two copies of a bidirectional pipeline."""
        return self
