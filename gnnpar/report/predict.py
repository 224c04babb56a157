"""Predicted against measured: the simulator with a run's own costs, beside one of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gnnpar.schedule import Action, Costs, Kind, Schedule, Timed, lower, simulate
from gnnpar.schedule.action import COMPUTE
from gnnpar.trace.replay import Replay
from gnnpar.trace.timeline import Op, Step

__all__ = ["Prediction", "computing", "micro_batches", "predict", "profile"]


@dataclass(frozen=True)
class Prediction:
    """One step, simulated and measured; seconds since its first start.

    Attributes:
        predicted: computing actions of every rank (process), simulated.
        measured: the same as they ran.
        ends: of every rank, when its last one ended (predicted, measured).
        twice: predicted seconds with twice the micro-batches at half the cost each; None where the schedule
            has no such form.
    """

    predicted: list[Timed]
    measured: list[Timed]
    ends: list[tuple[float, float]]
    twice: float | None

    @property
    def errors(self) -> list[float]:
        """(predicted - measured) ÷ measured end, by rank."""
        return [(plan - real) / real if real else 0.0 for plan, real in self.ends]

    @property
    def seconds(self) -> tuple[float, float]:
        """(predicted, measured) until the last rank is done."""
        return max(plan for plan, _ in self.ends), max(real for _, real in self.ends)


def profile(steps: Sequence[Step], num_stages: int) -> Costs:
    """The simulator's costs from measured steps: means over micro-batches, ways and steps.

    F, B, I and W by stage take as long as these actions did, what ways exchange inside them included, and an
    equal share of what their rank works between its actions (packing and posting messages); a stage's
    messages take what messages took that were waited for (0 where none were).
    """
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    delays: defaultdict[int, list[float]] = defaultdict(list)
    for step in steps:
        replay = Replay(step)
        stages: dict[int, int] = {}
        for rank, ops in enumerate(step.ranks):
            between = _between(ops)
            for action in {id(op.action): op.action for op in ops if op.action is not None}.values():
                seconds[action.kind, action.stage].append(action.end - action.start + between)
                stages.setdefault(rank, action.stage)
        for ops, keys in zip(step.ranks, replay.keys, strict=True):
            for op, key in zip(ops, keys, strict=True):
                if key in replay.delays and op.what == "wait" and op.event.text == "stage":
                    delays[stages[key.source]].append(replay.delays[key])

    def per_stage(kind: str) -> list[float]:
        return [_mean(seconds[kind, stage]) for stage in range(num_stages)]

    return Costs(
        F=per_stage("F"),
        B=per_stage("B"),
        I=per_stage("I"),
        W=per_stage("W"),
        message=[_mean(delays[stage]) for stage in range(num_stages)],
    )


def _between(ops: Sequence[Op]) -> float:
    """Seconds of work between the first action and the last that is part of none: each action's share."""
    places = [place for place, op in enumerate(ops) if op.action is not None]
    if not places:
        return 0.0
    inside = ops[places[0] : places[-1]]
    spent = sum(op.seconds for op in inside if op.what == "work" and op.action is None)
    return spent / len({id(ops[place].action) for place in places})


def predict(
    schedule: Schedule,
    twice: Schedule | None,
    step: Step,
    others: Sequence[Step],
    columns: Sequence[int],
) -> Prediction:
    """Simulate `step` with the costs of the others.

    Args:
        schedule: of a step.
        columns: of every rank, its column: what a schedule calls a rank.
    """
    costs = profile(others, schedule.num_stages)
    timeline = [bar for bar in simulate(lower(schedule), costs).timeline if bar.action.kind in COMPUTE]
    measured = computing(step)
    # The simulator knows nothing of what comes before the first action.
    lead = min((bar.start for bar in measured), default=0.0)
    predicted = [
        Timed(rank, lead + bar.start, lead + bar.end, bar.action)
        for rank, column in enumerate(columns)
        for bar in timeline
        if bar.rank == column
    ]
    ends = [(_last(predicted, rank), _last(measured, rank)) for rank in range(len(columns))]
    doubled = None
    if twice is not None:
        F, B, I, W, message = (  # noqa: E741
            [value / 2 for value in costs.per_stage(name, schedule.num_stages)]
            for name in ("F", "B", "I", "W", "message")
        )
        doubled = lead + simulate(lower(twice), Costs(F=F, B=B, I=I, W=W, message=message)).makespan
    return Prediction(predicted, measured, ends, doubled)


def computing(step: Step) -> list[Timed]:
    """The computing actions of a step as the drawing functions take them, since its first start."""
    origin = min((ops[0].start for ops in step.ranks if ops), default=0.0)
    found: dict[tuple[int, int], Timed] = {}
    for rank, ops in enumerate(step.ranks):
        for op in ops:
            if op.action is not None and (rank, id(op.action)) not in found:
                action = Action.parse(op.action.text)
                bar = Timed(rank, op.action.start - origin, op.action.end - origin, action)
                found[rank, id(op.action)] = bar
    return [bar for bar in found.values() if bar.action.kind in COMPUTE]


def micro_batches(step: Step) -> int:
    """How many a step has: exact steps run all as one."""
    forward = [bar.action for bar in computing(step) if bar.action.kind is Kind.F]
    return len({batch for action in forward for batch in action.micro_batches})


def _last(bars: Sequence[Timed], rank: int) -> float:
    return max((bar.end for bar in bars if bar.rank == rank), default=0.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
