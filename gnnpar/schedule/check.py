"""check(): whether a schedule is complete, in an order that can run, and legal for its micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gnnpar.errors import InputError
from gnnpar.schedule import kernel
from gnnpar.schedule.action import COMMUNICATION, Action, Kind
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.dependencies import INDEPENDENT, Dependencies, dependencies_for, owners, predecessors
from gnnpar.schedule.engine import Outcome, run
from gnnpar.schedule.schedule import Schedule

__all__ = ["check", "explain", "marked_grid"]

_Key = tuple[str, int, int, int, int]  # kind, stage, micro-batch, replica, peer


def check(
    schedule: Schedule,
    *,
    batch: str = "graph",
    neighbours: str = "drop",
    gradient: str = "drop",
    reads: tuple[tuple[int, ...], ...] | None = None,
) -> None:
    """Refuses a schedule that cannot be run as it stands.

    Checked are: every F, B (or I and W) and REDUCE exactly once and on the rank that holds the stage; a STEP
    for every update, after its backwards and before those of the next; every predecessor before its successor
    (see ``dependencies.predecessors``); no deadlock with asynchronous sends; in a lowered schedule, every
    message sent and received once, and between two ranks received in the order in which it was sent. Cost:
    one simulation, O(actions).

    Args:
        batch, neighbours, gradient, reads: what micro-batches read of each other, as ``dependencies_for``.

    Raises:
        InputError: with the reason, the rank × step grid and the offending cell marked.
    """
    unit = Costs()
    if schedule.num_updates > 1:
        _refuse_mixed_updates(schedule)
    outcome = run(schedule, unit, INDEPENDENT)
    if outcome.fault:
        raise explain(schedule, outcome, INDEPENDENT)
    _refuse_missing(schedule, outcome)
    if schedule.lowered:
        _refuse_unmatched(schedule)
    dependencies = dependencies_for(batch, neighbours, gradient, reads)
    if dependencies != INDEPENDENT:
        outcome = run(schedule, unit, dependencies)
        if outcome.fault:
            raise _illegal(schedule, outcome, dependencies)


def explain(schedule: Schedule, outcome: Outcome, dependencies: Dependencies) -> InputError:
    """The error that says where and why the event loop stopped."""
    rank, step = outcome.rank, _step(schedule, outcome, outcome.rank, outcome.index)
    if outcome.fault == kernel.STUCK:
        rank, step, reason = _root(schedule, outcome, dependencies)
        return _error(schedule, rank, step, reason)
    item = schedule.ranks[rank][step]
    part = _part(schedule, outcome, step)
    if outcome.fault == kernel.RANGE:
        reason = (
            f"{part} is out of range: there are {schedule.num_stages} stages, "
            f"{schedule.num_micro_batches} micro-batches and {schedule.num_replicas} replicas"
        )
    elif outcome.fault == kernel.MISPLACED:
        holder = schedule.rank_of(part.stage, part.replica)
        reason = f"{part} is on rank {rank}, but its stage is placed on rank {holder}"
    elif outcome.fault == kernel.SPLIT:
        reason = f"{part}: a micro-batch must stay in one replica, and another replica runs it too"
    elif outcome.fault == kernel.DUPLICATE:
        reason = f"{part} is done twice"
    else:
        reason = f"{part}: no edge of the graph of stages crosses ranks here, or the schedule is not lowered"
    return _error(schedule, rank, step, reason if item.parts == (part,) else f"in {item}: {reason}")


def marked_grid(schedule: Schedule, rank: int, step: int, *, around: int = 5) -> str:
    """The rank × step grid near one cell, marked ``>like this<``; a step past the end is ``>missing<``."""
    ranks = range(max(0, rank - around), min(schedule.num_ranks, rank + around + 1))
    steps = range(max(0, step - around), step + around + 1)
    rows = [["step", *map(str, steps)]]
    for number in ranks:
        row, program = [f"rank {number}"], schedule.ranks[number]
        for place in steps:
            text = str(program[place]) if place < len(program) else ""
            marked = (number, place) == (rank, step)
            row.append(f">{text or 'missing'}<" if marked else text)
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _error(schedule: Schedule, rank: int, step: int, reason: str) -> InputError:
    text = f"rank {rank}, step {step}: {reason}\n{marked_grid(schedule, rank, step)}"
    return InputError(f"schedule {schedule.name}", [text])


def _step(schedule: Schedule, outcome: Outcome, rank: int, index: int) -> int:
    """The item of a rank that holds a code (an index into all codes)."""
    local = index - outcome.plan.ptr[rank]
    starts = schedule.ranks[rank].starts
    return max(place for place, start in enumerate(starts) if start <= local)


def _part(schedule: Schedule, outcome: Outcome, step: int) -> Action:
    program = schedule.ranks[outcome.rank]
    at = outcome.plan.ptr[outcome.rank] + program.starts[step]
    for part in program[step].parts:
        at += max(len(part.micro_batches), 1)
        if outcome.index < at:
            return part
    raise AssertionError("the code lies in its item")


def _keys(part: Action) -> Iterator[_Key]:
    """What an action brings about; a whole backward brings both halves."""
    kinds = ("I", "W") if part.kind == Kind.B else (part.kind.name,)
    for kind in kinds:
        for batch in part.micro_batches or (-1,):
            yield kind, part.stage, batch, part.replica, -1 if part.peer is None else part.peer


def _needs(schedule: Schedule, part: Action, dependencies: Dependencies, rendezvous: bool) -> list[_Key]:
    """What an action waits for, in the terms of ``_keys``."""
    here = schedule.rank_of(part.stage, part.replica)
    whole = part.kind in (Kind.REDUCE, Kind.STEP)
    keys: list[_Key] = []
    for need in sorted(predecessors(schedule, part, dependencies), key=str):
        kind, batch = need.kind.name, need.micro_batches[0]
        away = schedule.lowered and schedule.rank_of(need.stage, need.replica) != here
        if away and part.kind not in COMMUNICATION:
            keys.append((f"RECV_{kind}", part.stage, batch, part.replica, need.stage))
        else:
            half = "W" if whole else "I"
            keys.append((half if kind == "B" else kind, need.stage, batch, need.replica, -1))
    if part.kind in COMMUNICATION and (rendezvous or part.kind.name.startswith("RECV")):
        verb, direction = part.kind.name.split("_")
        other = f"{'SEND' if verb == 'RECV' else 'RECV'}_{direction}"
        assert part.peer is not None
        keys += [(other, part.peer, batch, part.replica, part.stage) for batch in part.micro_batches]
    if part.kind == Kind.STEP and schedule.num_replicas > 1:
        keys += [("REDUCE", part.stage, -1, replica, -1) for replica in range(schedule.num_replicas)]
    return keys


def _root(schedule: Schedule, outcome: Outcome, dependencies: Dependencies) -> tuple[int, int, str]:
    """Follows who waits for whom to the cell that is at fault: (rank, step, reason)."""
    where: dict[_Key, tuple[int, int]] = {}
    parts: dict[int, Action] = {}
    for rank, program in enumerate(schedule.ranks):
        at = outcome.plan.ptr[rank]
        for item in program:
            for part in item.parts:
                where.update((key, (rank, at)) for key in _keys(part))
                parts[at] = part
                at += max(len(part.micro_batches), 1)
    rank, seen, trail = outcome.rank, set[int](), list[str]()
    while True:
        reached = int(outcome.state.pos[rank])
        step = _step(schedule, outcome, rank, reached)
        waiting = parts[reached]
        key = _missing(schedule, outcome, waiting, where, dependencies)
        needed = _name(key)
        if key not in where:
            return rank, step, f"{waiting} waits for {needed}, which is nowhere in the schedule"
        owner = where[key][0]
        trail.append(f"{waiting} on rank {rank} waits for {needed} on rank {owner}")
        if owner == rank:
            return rank, step, f"{waiting} waits for {needed}, which comes later on the same rank"
        if owner in seen:
            return rank, step, "deadlock: " + "; ".join(trail)
        seen.add(rank)
        rank = owner


def _missing(
    schedule: Schedule,
    outcome: Outcome,
    part: Action,
    where: dict[_Key, tuple[int, int]],
    dependencies: Dependencies,
) -> _Key:
    """The first thing that a blocked action lacks."""
    for key in _needs(schedule, part, dependencies, bool(outcome.plan.sizes[6])):
        rank, at = where.get(key, (0, -1))
        if at < 0 or at >= outcome.state.pos[rank]:
            return key
    raise AssertionError(f"{part} is blocked, and lacks nothing")


def _name(key: _Key) -> str:
    kind, stage, batch, replica, peer = key
    named = {"I": "B"}.get(kind, kind)
    batches = () if batch < 0 else (batch,)
    return str(Action(Kind[named], stage, batches, replica, None if peer < 0 else peer))


def _refuse_missing(schedule: Schedule, outcome: Outcome) -> None:
    """Everything that ran was legal; was it everything?"""
    state, stages = outcome.state, schedule.num_stages
    owner = owners(schedule)
    for replica, row in enumerate(schedule.placement):
        mine = [batch for batch, holder in enumerate(owner) if holder == replica]
        for stage, rank in enumerate(row):
            at = replica * stages + stage
            complete = (
                state.total[at] == state.ended[at] == len(mine) and state.steps[at] == schedule.num_updates
            )
            if complete and (state.reduces[at] == 1 or schedule.num_replicas == 1):
                continue
            present = {key for item in schedule.ranks[rank] for part in item.parts for key in _keys(part)}
            wanted = [(kind, stage, batch, replica, -1) for kind in "FIW" for batch in mine]
            wanted += [("REDUCE", stage, -1, replica, -1)] * (schedule.num_replicas > 1)
            wanted.append(("STEP", stage, -1, replica, -1))
            absent = [_name(key) for key in wanted if key not in present]
            missing = schedule.num_updates - int(state.steps[at])
            if not absent:
                absent = [f"{missing} of {schedule.num_updates} updates, {_name(wanted[-1])},"]
            text = f"{', '.join(absent[:8])}{' …' if len(absent) > 8 else ''} missing"
            raise _error(schedule, rank, len(schedule.ranks[rank]), text)
    lost = [str(batch) for batch, holder in enumerate(owner) if state.owner[batch] < 0]
    if lost:
        rank = schedule.rank_of(0)
        end = len(schedule.ranks[rank])
        raise _error(schedule, rank, end, f"micro-batch {', '.join(lost[:8])} is never run")


def _refuse_mixed_updates(schedule: Schedule) -> None:
    """The gradients of one update must be complete at its STEP, and apart from those of the next."""
    size = schedule.num_micro_batches // schedule.num_updates
    for rank, program in enumerate(schedule.ranks):
        steps: Counter[tuple[int, int]] = Counter()
        ended: Counter[tuple[int, int]] = Counter()
        for step, item in enumerate(program):
            for part in item.parts:
                held = part.replica, part.stage
                if part.kind in (Kind.B, Kind.I, Kind.W):
                    ended[held] += len(part.micro_batches) * (part.kind != Kind.I)
                    wrong = [m for m in part.micro_batches if schedule.update_of(m) != steps[held]]
                    if wrong:
                        own = schedule.update_of(wrong[0])
                        reason = (
                            f"{part}: micro-batch {wrong[0]} belongs to update {own}, "
                            f"but this is the stretch of update {steps[held]}"
                        )
                        raise _error(schedule, rank, step, reason)
                elif part.kind == Kind.STEP:
                    steps[held] += 1
                    if ended[held] != steps[held] * size:
                        reason = (
                            f"{part} is update {steps[held] - 1}, which takes {size} backwards; "
                            f"there are {ended[held] - (steps[held] - 1) * size} before it"
                        )
                        raise _error(schedule, rank, step, reason)


def _refuse_unmatched(schedule: Schedule) -> None:
    """Messages between two ranks must be received in the order in which they are sent."""
    sent: dict[tuple[int, int], list[Action]] = {}
    received: dict[tuple[int, int], list[tuple[int, Action]]] = {}
    for rank, program in enumerate(schedule.ranks):
        for step, item in enumerate(program):
            for part in item.parts:
                if part.kind not in COMMUNICATION or part.peer is None:
                    continue
                peer = schedule.rank_of(part.peer, part.replica)
                if part.kind in (Kind.SEND_F, Kind.SEND_B):
                    sent.setdefault((rank, peer), []).append(part)
                else:
                    received.setdefault((peer, rank), []).append((step, part))
    for pair in sorted({*sent, *received}):
        posts, takes = sent.get(pair, []), received.get(pair, [])
        for post, (step, take) in zip(posts, takes, strict=False):
            if take != _receipt(post):
                reason = f"{take} is received where rank {pair[0]} sends {post}"
                raise _error(schedule, pair[1], step, reason)
        if len(posts) > len(takes):
            end = len(schedule.ranks[pair[1]])
            raise _error(schedule, pair[1], end, f"{posts[len(takes)]} of rank {pair[0]} is never received")


def _receipt(send: Action) -> Action:
    assert send.peer is not None
    return Action(Kind(send.kind + 1), send.peer, send.micro_batches, send.replica, send.stage)


def _illegal(schedule: Schedule, outcome: Outcome, dependencies: Dependencies) -> InputError:
    """Refuses an order that the micro-batches do not allow, and names the nearest that is allowed."""
    if outcome.fault != kernel.STUCK:
        return explain(schedule, outcome, dependencies)
    rank, step, reason = _root(schedule, outcome, dependencies)
    if dependencies.reads is not None:
        why = "exact chunks read rows of other chunks, which must be computed a stage earlier"
        cure = "use schedule=gpipe, or read these rows from history (neighbours=history)"
    elif dependencies.backward_in_reverse:
        why = (
            "with vertex chunks, history and accumulated gradients, the backward of a chunk needs the "
            "backward of every chunk computed after it on the same stage"
        )
        cure = "use schedule=gpipe, which runs backwards in reverse order in the same time"
        if not run(schedule, Costs(), Dependencies(forward_in_order=True)).fault:
            cure += f"; or keep {schedule.name} and drop gradients between chunks (history.gamma=0)"
    else:
        why = "with vertex chunks and history, chunks must go forward in order on every stage"
        cure = "use schedule=gpipe, or drop the neighbours outside a chunk (history.mode=drop)"
    return _error(schedule, rank, step, f"{reason}: {why}; {cure}")
