"""lower(): inserts SEND and RECV into a schedule of computations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnnpar.errors import InputError
from gnnpar.schedule.action import Action, Compound, Item, Kind
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.schedule import Schedule
from gnnpar.schedule.simulate import simulate

__all__ = ["lower"]

_Message = tuple[Action, Action]  # its SEND and its RECV


def lower(schedule: Schedule, *, matching: str = "asynchronous", costs: Costs | None = None) -> Schedule:
    """The same schedule with its communication, one message per micro-batch and edge between ranks.

    ``asynchronous``: each send stands right after its producer. Each receive stands right before its
    consumer, or earlier where the sender sends it before another message that is needed: so two ranks see
    their messages in one order, no tag is needed, and posting sends without waiting (and receives ahead)
    never deadlocks, whatever the family.

    ``rendezvous``: every message is placed at the time its producer ends if they are free, in one order for
    all ranks, so that even sends that block until they are received never deadlock. It takes compounds apart.
    ``paired``: the same, and a send next to a receive becomes one exchange, ``(2SEND_F3>3;2RECV_B1<3)``,
    which a full-duplex port runs together.

    Inside a compound the messages of its parts are parts themselves: ``(2RECV_F3<1;2F3;2SEND_F3>3;2B1)``.
    Stages on one rank exchange nothing. Cost: O(actions), or O(actions · log actions) for the blocking forms.

    Raises:
        InputError: the schedule is lowered already, or cannot run.
    """
    if schedule.lowered:
        raise InputError(f"schedule {schedule.name}", ["it has SEND and RECV already"])
    if matching == "asynchronous":
        ranks = _asynchronous(schedule)
    elif matching in ("rendezvous", "paired"):
        ranks = _rendezvous(schedule, costs, matching == "paired")
    else:
        raise InputError("lower", [f"matching: '{matching}' is not asynchronous, rendezvous or paired"])
    return schedule.with_ranks(ranks, lowered=True)


def _outgoing(schedule: Schedule, part: Action) -> Iterator[_Message]:
    """The messages that carry an action's results."""
    if part.kind == Kind.F:
        peers, send, receive = schedule.successors(part.stage), Kind.SEND_F, Kind.RECV_F
    elif part.kind in (Kind.B, Kind.I) and not schedule.detached:
        peers, send, receive = schedule.predecessors(part.stage), Kind.SEND_B, Kind.RECV_B
    else:
        return
    here = schedule.rank_of(part.stage, part.replica)
    for peer in peers:
        if schedule.rank_of(peer, part.replica) != here:
            for batch in part.micro_batches:
                yield (
                    Action(send, part.stage, (batch,), part.replica, peer),
                    Action(receive, peer, (batch,), part.replica, part.stage),
                )


def _incoming(schedule: Schedule, part: Action) -> Iterator[tuple[int, Action]]:
    """(rank of the sender, RECV) of every message that an action reads."""
    if part.kind == Kind.F:
        peers, receive = schedule.predecessors(part.stage), Kind.RECV_F
    elif part.kind in (Kind.B, Kind.I) and not schedule.detached:
        peers, receive = schedule.successors(part.stage), Kind.RECV_B
    else:
        return
    here = schedule.rank_of(part.stage, part.replica)
    for peer in peers:
        sender = schedule.rank_of(peer, part.replica)
        if sender != here:
            for batch in part.micro_batches:
                yield sender, Action(receive, part.stage, (batch,), part.replica, peer)


def _asynchronous(schedule: Schedule) -> list[list[Item]]:
    coming: dict[tuple[int, int], list[Action]] = {}
    for rank, program in enumerate(schedule.ranks):
        for item in program:
            for part in item.parts:
                for _, receive in _outgoing(schedule, part):
                    target = schedule.rank_of(receive.stage, receive.replica)
                    coming.setdefault((rank, target), []).append(receive)
    place = {receive: number for queue in coming.values() for number, receive in enumerate(queue)}
    ranks: list[list[Item]] = []
    for rank, program in enumerate(schedule.ranks):
        items: list[Item] = []
        taken: dict[int, int] = {}
        for item in program:
            parts: list[Action] = []
            for part in item.parts:
                for sender, receive in _incoming(schedule, part):
                    if receive not in place:
                        raise InputError(
                            f"schedule {schedule.name}", [f"rank {rank}: nobody sends {receive}"]
                        )
                    due = place[receive] + 1
                    parts += coming[sender, rank][taken.get(sender, 0) : due]
                    taken[sender] = max(taken.get(sender, 0), due)
                parts.append(part)
                parts += [send for send, _ in _outgoing(schedule, part)]
            if isinstance(item, Compound):
                items.append(Compound(tuple(parts)))
            else:
                items += parts
        ranks.append(items)
    return ranks


def _rendezvous(schedule: Schedule, costs: Costs | None, paired: bool) -> list[list[Item]]:
    """Every message at the time its producer ends, in one order for all ranks."""
    free = replace(costs or Costs(), latency=0.0, message=0.0, message_back=None)
    events: list[tuple[float, int, int, int, Action]] = []
    for number, timed in enumerate(simulate(schedule, free).timeline):
        (part,) = timed.action.parts
        events.append((timed.start, 1, timed.rank, number, part))
        if part.kind in (Kind.F, Kind.B, Kind.I):
            events.append((timed.end, 0, -timed.rank, number, part))
    ranks: list[list[Item]] = [[] for _ in schedule.ranks]
    for _, computes, place, _, part in sorted(events, key=lambda event: event[:4]):
        rank = abs(place)
        if computes:
            ranks[rank].append(part)
            continue
        for send, receive in _outgoing(schedule, part):
            peer = schedule.rank_of(receive.stage, receive.replica)
            ranks[rank].append(send)
            ranks[peer].append(receive)
    return [_exchanges(items) for items in ranks] if paired else ranks


def _exchanges(items: list[Item]) -> list[Item]:
    """A send next to a receive becomes one compound; posting either earlier can only unblock its peer."""
    merged: list[Item] = []
    for item in items:
        last = merged[-1] if merged else None
        if isinstance(last, Action) and isinstance(item, Action) and {last.kind, item.kind} in _DUPLEX:
            merged[-1] = Compound((last, item))
        else:
            merged.append(item)
    return merged


_DUPLEX = [{send, receive} for send in (Kind.SEND_F, Kind.SEND_B) for receive in (Kind.RECV_F, Kind.RECV_B)]
