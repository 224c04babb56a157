"""Marshals a schedule and its costs into the event loop, small ones in Python and large ones compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from gnnpar.schedule import kernel, loop
from gnnpar.schedule.action import COMPUTE, Kind
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.dependencies import Dependencies, neighbours_in_replica
from gnnpar.schedule.schedule import Schedule

__all__ = ["Outcome", "run"]

# Below this many actions compiling (or loading) the loop takes longer than running it in Python.
_COMPILE_FROM = 300_000

_Pass = Callable[..., tuple[int, int, int]]


@dataclass(frozen=True)
class Outcome:
    """What the event loop found: the fault (kernel.OK if none) with its rank and code, and the state."""

    fault: int
    rank: int
    index: int
    plan: kernel.Plan
    state: kernel.State


def run(
    schedule: Schedule,
    costs: Costs,
    dependencies: Dependencies,
    *,
    full_overlap: bool = False,
    rendezvous: bool = False,
    compiled: bool | None = None,
) -> Outcome:
    """Executes a schedule in simulated time. Cost: O(actions), 80 bytes an action when compiled.

    Args:
        full_overlap: parts of a compound action run at the same time, instead of one after the other.
        rendezvous: of a lowered schedule, SEND and RECV block both ranks until the message is over.
        compiled: whether numba runs the loop; default: for large schedules, where numba is installed.
    """
    num_codes = sum(len(rank.codes) for rank in schedule.ranks)
    jitted = _compiled() if (num_codes >= _COMPILE_FROM if compiled is None else compiled) else None
    make = _Lists() if jitted is None else _Arrays()
    plan = _plan(schedule, costs, dependencies, make, full_overlap, rendezvous)
    state = _state(schedule, num_codes, len(plan.edge_to), 1 + max(plan.link, default=0), make)
    survey, advance = jitted or (kernel.survey, loop.advance)
    fault, rank, index = survey(plan, state)
    if fault == kernel.OK:
        fault, rank, index = advance(plan, state)
    return Outcome(int(fault), int(rank), int(index), plan, state)


def _plan(
    schedule: Schedule,
    costs: Costs,
    dependencies: Dependencies,
    make: _Lists | _Arrays,
    full_overlap: bool,
    rendezvous: bool,
) -> kernel.Plan:
    edges, num_stages = schedule.stage_edges, schedule.num_stages
    in_ptr, in_edge = _rows([[e for e, _ in found] for found in _by_stage(edges, 1, num_stages)])
    out_ptr, out_edge = _rows([[e for e, _ in found] for found in _by_stage(edges, 0, num_stages)])
    ordered = dependencies.forward_in_order or dependencies.backward_in_reverse
    before, after = neighbours_in_replica(schedule) if ordered else ([-1], [-1])
    reads_ptr, reads = _rows(dependencies.reads or ())
    readers_ptr, readers = _rows(dependencies.readers or ())
    durations = costs.durations(num_stages)
    ways = costs.ways_of(schedule.num_ranks)
    places = [(stage, ways[rank]) for row in schedule.placement for stage, rank in enumerate(row)]
    latency, transfer, link = _links(schedule, costs)
    sizes = (
        schedule.num_replicas,
        num_stages,
        len(edges),
        schedule.num_micro_batches,
        schedule.num_ranks,
        schedule.lowered,
        rendezvous,
        full_overlap,
        dependencies.forward_in_order,
        dependencies.backward_in_reverse,
        dependencies.reads is not None,
        schedule.num_updates,
        schedule.detached,
    )
    return kernel.Plan(
        codes=make.codes(schedule),
        ptr=make.ints([0, *accumulate(len(rank.codes) for rank in schedule.ranks)]),
        sizes=make.ints(map(int, sizes)),
        rank_of=make.ints(rank for row in schedule.placement for rank in row),
        in_ptr=make.ints(in_ptr),
        in_edge=make.ints(in_edge),
        out_ptr=make.ints(out_ptr),
        out_edge=make.ints(out_edge),
        edge_from=make.ints(source for source, _ in edges),
        edge_to=make.ints(target for _, target in edges),
        before=make.ints(before),
        after=make.ints(after),
        reads_ptr=make.ints(reads_ptr),
        reads=make.ints(reads),
        readers_ptr=make.ints(readers_ptr),
        readers=make.ints(readers),
        duration=make.floats(
            durations[kind][stage] / (share if kind in COMPUTE else 1.0) if kind in durations else 0.0
            for kind in Kind
            for stage, share in places
        ),
        scale=make.floats(costs.scales(schedule.num_micro_batches)),
        latency=make.floats(latency),
        transfer=make.floats(transfer),
        link=make.ints(link),
    )


def _state(schedule: Schedule, num_codes: int, num_edges: int, num_links: int, make: Any) -> kernel.State:
    ranks, stages = schedule.num_ranks, schedule.num_stages
    held = schedule.num_replicas * stages
    batches = schedule.num_micro_batches
    messages = 2 * schedule.num_replicas * num_edges * batches
    return kernel.State(
        start=make.filled(num_codes, -1.0),
        end=make.filled(num_codes, -1.0),
        done=make.filled(3 * held * batches, -1.0),
        arrived=make.filled(messages, -1.0),
        sent=make.filled(messages if schedule.lowered else 1, -1.0),
        received=make.filled(messages if schedule.lowered else 1, -1.0),
        free=make.filled(ranks, 0.0),
        base=make.filled(ranks, 0.0),
        pos=make.ints([0, *accumulate(len(rank.codes) for rank in schedule.ranks)][:-1]),
        busy=make.filled(ranks, 0.0),
        talking=make.filled(ranks, 0.0),
        live=make.filled(ranks, 0),
        peak=make.filled(ranks, 0),
        owner=make.filled(batches, -1),
        total=make.filled(held, 0),
        ended=make.filled(held, 0),
        reduces=make.filled(held, 0),
        steps=make.filled(held, 0),
        expected=make.filled(stages, 0),
        posted=make.filled(stages, 0),
        reduced_at=make.filled(stages, 0.0),
        link_free=make.filled(num_links, 0.0),
        stack=make.filled(ranks, 0),
        queued=make.filled(ranks, 0),
    )


def _by_stage(edges: Sequence[tuple[int, int]], end: int, num_stages: int) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(num_stages)]
    for number, edge in enumerate(edges):
        found[edge[end]].append((number, edge[1 - end]))
    return found


def _rows(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    return [0, *accumulate(map(len, rows))], [entry for row in rows for entry in row]


def _links(schedule: Schedule, costs: Costs) -> tuple[list[float], list[float], list[int]]:
    """Latency, transfer time and link number of forward, then backward messages, by (replica, edge)."""
    there = costs.per_stage("message", schedule.num_stages)
    back = there if costs.message_back is None else costs.per_stage("message_back", schedule.num_stages)
    numbers: dict[tuple[int, int], int] = {}
    latency, transfer, link = [], [], []
    for direction, sizes in enumerate((there, back)):
        for row in schedule.placement:
            for source, target in schedule.stage_edges:
                ends = (row[source], row[target]) if direction == 0 else (row[target], row[source])
                latency.append(costs.latency)
                transfer.append(sizes[source] * costs.links.get(ends, 1.0))
                link.append(numbers.setdefault(ends, len(numbers)))
    return latency, transfer, link


class _Lists:
    """Python lists: no dependency, and faster than arrays for code that is not compiled."""

    def codes(self, schedule: Schedule) -> list[int]:
        return [code for rank in schedule.ranks for code in rank.codes]

    def ints(self, values: Iterable[int]) -> list[int]:
        return list(values)

    def floats(self, values: Iterable[float]) -> list[float]:
        return list(values)

    def filled(self, count: int, value: float) -> list[float]:
        return [value] * count


class _Arrays:
    """numpy arrays, for the compiled loop."""

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy

    def codes(self, schedule: Schedule) -> Any:
        return self.numpy.concatenate(
            [self.numpy.frombuffer(rank.codes, self.numpy.int64) for rank in schedule.ranks if rank.codes]
        )

    def ints(self, values: Iterable[int]) -> Any:
        return self.numpy.fromiter(values, self.numpy.int64)

    def floats(self, values: Iterable[float]) -> Any:
        return self.numpy.fromiter(values, self.numpy.float64)

    def filled(self, count: int, value: float) -> Any:
        kind = self.numpy.float64 if isinstance(value, float) else self.numpy.int64
        return self.numpy.full(count, value, kind)


@cache
def _compiled() -> tuple[_Pass, _Pass] | None:
    try:
        import numba
    except ImportError:
        return None
    passes = (kernel.survey, loop.advance)
    try:
        survey, advance = (numba.njit(function, cache=True) for function in passes)
    except RuntimeError:  # no folder that numba may write its cache to
        survey, advance = (numba.njit(function) for function in passes)
    return survey, advance
