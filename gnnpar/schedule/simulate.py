"""simulate(): when every action of a schedule would run, under given costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gnnpar.errors import InputError
from gnnpar.schedule import kernel
from gnnpar.schedule.action import Action, Kind
from gnnpar.schedule.check import explain
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.dependencies import INDEPENDENT, Dependencies
from gnnpar.schedule.engine import Outcome, run
from gnnpar.schedule.program import KIND_AT, KIND_MASK
from gnnpar.schedule.schedule import Schedule

__all__ = ["SimulationResult", "Timed", "simulate"]


@dataclass(frozen=True, slots=True)
class Timed:
    """One action with its times, planned or measured."""

    rank: int
    start: float
    end: float
    action: Action


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation found; times in the unit of the costs.

    Attributes:
        makespan: when the last rank ends.
        busy: computing time of each rank.
        idle: makespan − busy, of each rank.
        window_idle: idle between a rank's first and last computation.
        bubble: idle share of the whole, Σ idle ÷ (ranks · makespan).
        communicating: time of each rank inside blocking messages (part of idle).
        peak_in_flight: most micro-batches of a rank's stages between F and the end of their backward
            (W, where it is split), counted per stage.
        peak_bytes: most bytes that these keep, by ``costs.activation``, on each way of the rank.
        messages: messages between ranks in one step.
    """

    schedule: Schedule
    makespan: float
    busy: tuple[float, ...]
    idle: tuple[float, ...]
    window_idle: tuple[float, ...]
    bubble: float
    communicating: tuple[float, ...]
    peak_in_flight: tuple[int, ...]
    messages: int
    _costs: Costs
    _outcome: Outcome

    @property
    def timeline(self) -> Iterator[Timed]:
        """Every action with its times, rank by rank; parts of an overlapped compound apart."""
        plan, state = self._outcome.plan, self._outcome.state
        for number, rank in enumerate(self.schedule.ranks):
            at = plan.ptr[number]
            for item in rank:
                for part in item.parts:
                    last = at + max(len(part.micro_batches), 1) - 1
                    yield Timed(number, float(state.start[last]), float(state.end[last]), part)
                    at = last + 1

    @property
    def peak_bytes(self) -> tuple[float, ...]:
        """Most activation bytes of each rank: ``memory`` at its highest."""
        return tuple(
            max((held for _, held in self.memory(rank)), default=0.0)
            for rank in range(self.schedule.num_ranks)
        )

    def memory(self, rank: int) -> list[tuple[float, float]]:
        """(time, activation bytes) of a rank after every change, in program order."""
        sizes = self._costs.per_stage("activation", self.schedule.num_stages)
        scales = self._costs.scales(self.schedule.num_micro_batches)
        ways = self._costs.ways_of(self.schedule.num_ranks)[rank]
        state, at, held = self._outcome.state, self._outcome.plan.ptr[rank], 0.0
        points: list[tuple[float, float]] = []
        for item in self.schedule.ranks[rank]:
            for part in item.parts:
                size = sizes[part.stage] * sum(scales[batch] for batch in part.micro_batches) / ways
                if part.kind == Kind.F:
                    held += size
                    points.append((float(state.start[at]), held))
                elif part.kind in (Kind.B, Kind.W):
                    held -= size
                    points.append((float(state.end[at]), held))
                at += max(len(part.micro_batches), 1)
        return points


def simulate(
    schedule: Schedule,
    costs: Costs | None = None,
    *,
    dependencies: Dependencies = INDEPENDENT,
    overlap: str = "serial",
    rendezvous: bool = False,
    compiled: bool | None = None,
) -> SimulationResult:
    """Runs a schedule in simulated time: every rank takes its actions in order, each as soon as it can.

    Messages are asynchronous and serialised per directed pair of ranks; in a schedule without SEND and RECV
    they leave when their producer ends. Cost: O(actions); 8.4 million take seconds.

    Args:
        costs: default: one unit per F, I and W, two per B, messages free.
        dependencies: what micro-batches read of each other.
        overlap: ``serial`` runs the parts of a compound one after the other, ``full`` together.
        rendezvous: of a lowered schedule, SEND and RECV block both ranks until the message is over; parts of
            a compound exchange both directions at once.
        compiled: force or forbid the compiled loop.

    Raises:
        InputError: the schedule cannot run; the message shows the grid with the offending cell marked.
    """
    if overlap not in ("serial", "full"):
        raise InputError("simulate", [f"overlap: '{overlap}' is neither serial nor full"])
    if rendezvous and not schedule.lowered:
        raise InputError("simulate", ["rendezvous: the schedule has no SEND and RECV yet; lower it first"])
    costs = costs or Costs()
    outcome = run(
        schedule,
        costs,
        dependencies,
        full_overlap=overlap == "full",
        rendezvous=rendezvous,
        compiled=compiled,
    )
    if outcome.fault:
        raise explain(schedule, outcome, dependencies)
    state = outcome.state
    makespan = float(max(state.free, default=0.0))
    busy = tuple(float(value) for value in state.busy)
    idle = tuple(makespan - value for value in busy)
    span = makespan * schedule.num_ranks
    return SimulationResult(
        schedule=schedule,
        makespan=makespan,
        busy=busy,
        idle=idle,
        window_idle=tuple(_windows(schedule, outcome)),
        bubble=sum(idle) / span if span else 0.0,
        communicating=tuple(float(value) for value in state.talking),
        peak_in_flight=tuple(int(value) for value in state.peak),
        messages=_count_messages(schedule, outcome),
        _costs=costs,
        _outcome=outcome,
    )


def _windows(schedule: Schedule, outcome: Outcome) -> Iterator[float]:
    """Idle of each rank between its first and its last computation."""
    plan, state = outcome.plan, outcome.state
    for number, (low, high) in enumerate(pairwise(plan.ptr)):
        first, last = low, high - 1
        while first < high and _kind(plan.codes[first]) not in _COMPUTES:
            first += 1
        while last >= low and _kind(plan.codes[last]) not in _COMPUTES:
            last -= 1
        yield float(state.end[last] - state.start[first] - state.busy[number]) if first <= last else 0.0


_COMPUTES = (kernel.F, kernel.B, kernel.I, kernel.W)


def _kind(code: int) -> int:
    return int(code) >> KIND_AT & KIND_MASK


def _count_messages(schedule: Schedule, outcome: Outcome) -> int:
    """Messages between ranks: counted where they are explicit, else one per micro-batch and cut edge, and
    one for its gradient."""
    if schedule.lowered:
        return sum(_kind(code) in (Kind.SEND_F, Kind.SEND_B) for code in outcome.plan.codes)
    total = outcome.state.total
    count = 0
    for replica, row in enumerate(schedule.placement):
        cut = sum(row[source] != row[target] for source, target in schedule.stage_edges)
        count += (1 if schedule.detached else 2) * cut * int(total[replica * schedule.num_stages])
    return count
