"""Costs: what actions and messages take in a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gnnpar.errors import Faults
from gnnpar.schedule.action import Kind

__all__ = ["Costs"]

PerStage = float | Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Numbers in one unit of time of the caller's choice; each per stage, or one number for all stages. Only
    `ways` is per rank.

    Args:
        F: forward of a micro-batch. I, W: input- and weight-gradient half of a backward.
        B: a whole backward; default I + W.
        reduce: gradient reduction of a stage over its replicas and ways; it runs beside computation.
        step: optimizer step of a stage.
        micro_batches: relative size of each micro-batch, multiplying computation and message size.
        latency: of any message between ranks.
        message: transfer time of a whole micro-batch's message over each stage's outgoing edges, forward
            and backward alike; ``message_back`` where the backward differs.
        links: ``{(from rank, to rank): factor}`` multiplies the transfer time on a directed link.
        recompute: every backward (or I) first runs the forward again.
        activation: what one micro-batch in flight keeps on a stage, in bytes.
        ways: processes that share each rank of the schedule, and split every micro-batch: its F, B, I and W
            take one g-th of the time on g ways, and keep one g-th of the bytes. Messages stay whole (with
            equal groups g messages travel side by side; that is not modelled), and so does STEP, which every
            way does for itself.
    """

    F: PerStage = 1.0
    I: PerStage = 1.0  # noqa: E741
    W: PerStage = 1.0
    B: PerStage | None = None
    reduce: PerStage = 0.0
    step: PerStage = 0.0
    micro_batches: Sequence[float] | None = None
    latency: float = 0.0
    message: PerStage = 0.0
    message_back: PerStage | None = None
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)
    recompute: bool = False
    activation: PerStage = 1.0
    ways: PerStage = 1

    def __post_init__(self) -> None:
        faults = Faults("costs")
        faults.extend(_wrong("latency", [self.latency]))
        faults.extend(_wrong("links", self.links.values()))
        faults.raise_if_any()

    def per_stage(self, key: str, num_stages: int) -> list[float]:
        """One cost as a list over stages. Raises InputError on a wrong length or a negative number."""
        value = getattr(self, key)
        if isinstance(value, (int, float)):
            values = [float(value)] * num_stages
        else:
            values = [float(entry) for entry in value]
        faults = Faults("costs")
        if len(values) != num_stages:
            faults.add(f"{key}: {len(values)} numbers for {num_stages} stages")
        faults.extend(_wrong(key, values))
        faults.raise_if_any()
        return values

    def durations(self, num_stages: int) -> dict[Kind, list[float]]:
        """Duration of each kind of computation by stage, recomputation included."""
        forward, first, second = (self.per_stage(key, num_stages) for key in ("F", "I", "W"))
        whole = [a + b for a, b in zip(first, second, strict=True)]
        if self.B is not None:
            whole = self.per_stage("B", num_stages)
        if self.recompute:
            whole = [a + b for a, b in zip(whole, forward, strict=True)]
            first = [a + b for a, b in zip(first, forward, strict=True)]
        return {
            Kind.F: forward,
            Kind.B: whole,
            Kind.I: first,
            Kind.W: second,
            Kind.REDUCE: self.per_stage("reduce", num_stages),
            Kind.STEP: self.per_stage("step", num_stages),
        }

    def shared_ranks(self, num_ranks: int) -> list[int]:
        """The ranks that several ways share, which have gradients to sum."""
        return [rank for rank, count in enumerate(self.ways_of(num_ranks)) if count > 1]

    def ways_of(self, num_ranks: int) -> list[float]:
        """`ways` as a list over ranks. Raises InputError on a wrong length or a number below 1."""
        values = [float(self.ways)] * num_ranks if isinstance(self.ways, (int, float)) else [*self.ways]
        faults = Faults("costs")
        if len(values) != num_ranks:
            faults.add(f"ways: {len(values)} numbers for {num_ranks} ranks")
        if any(not 1 <= entry < math.inf for entry in values):
            faults.add(f"ways: must be finite and at least 1, got {self.ways}")
        faults.raise_if_any()
        return values

    def scales(self, num_micro_batches: int) -> list[float]:
        """Relative size of each micro-batch."""
        if self.micro_batches is None:
            return [1.0] * num_micro_batches
        faults = Faults("costs")
        if len(self.micro_batches) != num_micro_batches:
            faults.add(f"micro_batches: {len(self.micro_batches)} sizes for {num_micro_batches}")
        faults.extend(_wrong("micro_batches", self.micro_batches))
        faults.raise_if_any()
        return [float(size) for size in self.micro_batches]


def _wrong(key: str, values: Iterable[float]) -> Iterator[str]:
    bad = [value for value in values if not 0 <= value < math.inf]
    if bad:
        yield f"{key}: must not be negative or infinite, got {bad[0]:g}"
