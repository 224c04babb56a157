"""How many updates a stage has made when it runs a pass: what makes weights stale, read off a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gnnpar.schedule.action import Kind
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.schedule import Schedule
from gnnpar.schedule.simulate import simulate

__all__ = ["updates_before", "updates_until_return"]

Counts = Mapping[int, tuple[int, ...]]
"""A number for every micro-batch, by stage."""


def updates_before(schedule: Schedule, kind: Kind) -> Counts:
    """STEPs of a stage that precede its F (or B) of every micro-batch in its program.

    1F1B without a flush, T micro-batches an update, stage s of S: ⌊max(0, m − (S−1−s)) / T⌋ before F of m.
    """
    found = {stage: [0] * schedule.num_micro_batches for stage in range(schedule.num_stages)}
    for program in schedule.ranks:
        steps: Counter[int] = Counter()
        for item in program:
            for part in item.parts:
                if part.kind is kind:
                    for batch in part.micro_batches:
                        found[part.stage][batch] = steps[part.stage]
                steps[part.stage] += part.kind is Kind.STEP
    return {stage: tuple(counts) for stage, counts in found.items()}


def updates_until_return(schedule: Schedule, kind: Kind) -> Counts:
    """Updates that a stage makes between its F (or B) of the first micro-batch of an update and the end of
    that update's round trip, the backward of its last micro-batch on stage 0; the same for all its
    micro-batches.

    Times are simulated: forward and backward alike, messages free. This is the distance over which XPipe's
    formula estimates (Guan et al. 2019, §3.3).
    """
    timeline = list(simulate(schedule, Costs(F=1, B=1)).timeline)
    size = schedule.num_micro_batches // schedule.num_updates
    returned = {
        schedule.update_of(timed.action.micro_batch): timed.end
        for timed in timeline
        if timed.action.kind is Kind.B and timed.action.stage == 0
    }
    steps: dict[int, list[float]] = {stage: [] for stage in range(schedule.num_stages)}
    starts: dict[tuple[int, int], float] = {}
    for timed in timeline:
        if timed.action.kind is Kind.STEP:
            steps[timed.action.stage].append(timed.end)
        elif timed.action.kind is kind and timed.action.micro_batch % size == 0:
            starts[timed.action.stage, schedule.update_of(timed.action.micro_batch)] = timed.start
    return {
        stage: tuple(
            sum(starts[stage, update] < end < returned[update] for end in ends)
            for update in range(schedule.num_updates)
            for _ in range(size)
        )
        for stage, ends in steps.items()
    }
