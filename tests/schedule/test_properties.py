"""Random families, counts and costs: nothing deadlocks, every dependency holds, corruption is refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnpar.errors import InputError
from gnnpar.schedule import (
    Action,
    Compound,
    Costs,
    Kind,
    check,
    dependencies_for,
    lower,
    predecessors,
    simulate,
)
from gnnpar.schedule.families import FAMILIES

EVEN = ("chimera", "bitpipe", "dualpipe")
few = settings(max_examples=60, deadline=None)


@st.composite
def schedules(draw, names=tuple(FAMILIES)):
    name = draw(st.sampled_from(sorted(names)))
    stages = draw(st.integers(1, 3)) * 2 if name in EVEN else draw(st.integers(1, 6))
    batches = draw(st.integers(1, 9))
    if name in ("interleaved", "hanayo", "looped_bfs", "zb_h1"):
        key = "waves" if name == "hanayo" else "chunks"
        options = {key: draw(st.integers(1, 3))}
        batches = max(1, batches // stages * stages)
    elif name in ("one_f_one_b",):
        options = {"advance": draw(st.lists(st.integers(0, 4), min_size=stages, max_size=stages))}
        options["advance"].sort(reverse=True)
    elif name == "graphpipe":
        pairs = [(a, b) for b in range(stages) for a in range(b)]
        options = {"edges": sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else []}
    elif name in ("async_1f1b", "local_learning"):
        options = {"updates": draw(st.integers(1, 3))}
        batches *= options["updates"]
    else:
        options = {}
    if name in (*EVEN, "gems"):
        batches *= 2
    if name.startswith("dualpipe"):
        batches += 2 * stages
    return FAMILIES[name](stages, batches, **options)


@st.composite
def costs(draw, schedule):
    def per_stage():
        return draw(
            st.lists(
                st.sampled_from([0.25, 1, 1.5, 4]), min_size=schedule.num_stages, max_size=schedule.num_stages
            )
        )

    sizes = st.lists(
        st.sampled_from([0.5, 1, 3]), min_size=schedule.num_micro_batches, max_size=schedule.num_micro_batches
    )
    return Costs(
        F=per_stage(),
        I=per_stage(),
        W=per_stage(),
        micro_batches=draw(sizes),
        latency=draw(st.sampled_from([0, 0.5])),
        message=per_stage() if draw(st.booleans()) else 0,
        reduce=draw(st.sampled_from([0, 2])),
        step=draw(st.sampled_from([0, 1])),
    )


def computations(result):
    """Times of every (kind, stage, micro-batch, replica); a whole backward counts as its input half too."""
    times = {}
    for bar in result.timeline:
        for batch in bar.action.micro_batches:
            kinds = (Kind.B, Kind.I, Kind.W) if bar.action.kind == Kind.B else (bar.action.kind,)
            for kind in kinds:
                times[kind, bar.action.stage, batch, bar.action.replica] = (bar.start, bar.end)
    for (kind, *rest), span in list(times.items()):
        if kind == Kind.I:
            times[(Kind.B, *rest)] = span
    return times


@few
@given(st.data())
def test_nothing_deadlocks_and_every_dependency_holds(data):
    schedule = data.draw(schedules())
    check(schedule)
    price = data.draw(costs(schedule))
    overlap = data.draw(st.sampled_from(["serial", "full"]))
    result = simulate(schedule, price, overlap=overlap)
    times = computations(result)
    for bar in result.timeline:
        if bar.action.kind in (Kind.REDUCE, Kind.STEP):
            continue
        for need in predecessors(schedule, bar.action):
            end = times[need.kind, need.stage, need.micro_batch, need.replica][1]
            if schedule.rank_of(need.stage, need.replica) != bar.rank:
                end += price.latency
                assert bar.start >= end
            # Parts that overlap never depend on each other.
            assert bar.start >= end
    for rank, program in enumerate(schedule.ranks):
        spans = [(bar.start, bar.end) for bar in result.timeline if bar.rank == rank]
        if overlap == "serial" or not any(isinstance(item, Compound) for item in program):
            assert all(first[1] <= second[0] for first, second in pairwise(spans))
        assert result.busy[rank] <= sum(end - start for start, end in spans) + 1e-9
        assert result.idle[rank] >= -1e-9
    assert result.makespan == max(bar.end for bar in result.timeline)


@few
@given(st.data())
def test_1f1b_equals_the_recursion_of_dapples_planner(data):
    """DAPPLE's planner computes the times of 1F1B by a recursion of its own; stages and costs at random."""
    stages, batches = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    schedule = FAMILIES["one_f_one_b"](stages, batches)
    price = data.draw(costs(schedule))
    price = Costs(F=price.F, I=price.I, W=price.W, micro_batches=price.micro_batches)
    forward, backward = price.per_stage("F", stages), price.durations(stages)[Kind.B]
    sizes = price.scales(batches)
    ends = {}
    while len(ends) < 2 * stages * batches:
        known = len(ends)
        for stage in reversed(range(stages)):
            _recur(ends, stage, stages, batches, forward, backward, sizes)
        assert len(ends) > known
    times = computations(simulate(schedule, price))
    for (kind, stage, batch), end in ends.items():
        assert times[kind, stage, batch, 0][1] == pytest.approx(end)


def _recur(ends, stage, stages, batches, forward, backward, sizes):
    def end(kind, place, batch):
        inside = 0 <= place < stages and 0 <= batch < batches
        return ends.get((kind, place, batch)) if inside else 0.0

    for batch in range(batches):
        lead = stages - 1 - stage
        for kind, needs in (
            (
                Kind.F,
                [(Kind.B, stage, batch - lead - 1), (Kind.F, stage - 1, batch), (Kind.F, stage, batch - 1)],
            ),
            (
                Kind.B,
                [
                    (Kind.B, stage + 1, batch),
                    (Kind.F, stage, min(batch + lead, batches - 1)),
                    (Kind.B, stage, batch - 1),
                ],
            ),
        ):
            found = [end(*need) for need in needs]
            if (kind, stage, batch) not in ends and None not in found:
                cost = (forward if kind == Kind.F else backward)[stage]
                ends[kind, stage, batch] = max(found) + cost * sizes[batch]


@few
@given(st.data())
def test_communication_changes_no_order_and_never_deadlocks(data):
    schedule = data.draw(schedules())
    price = data.draw(costs(schedule))
    lowered = lower(schedule)
    check(lowered)
    bare = [
        [
            part
            for item in rank
            for part in item.parts
            if part.kind not in (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B)
        ]
        for rank in lowered.ranks
    ]
    assert bare == [[part for item in rank for part in item.parts] for rank in schedule.ranks]
    plain, sent = simulate(schedule, price), simulate(lowered, price)
    assert sent.messages == plain.messages
    # A receive that is posted earlier for the order of messages never waits longer than its consumer.
    assert sent.makespan == pytest.approx(plain.makespan)
    for matching in ("rendezvous", "paired"):
        blocking = simulate(lower(schedule, matching=matching, costs=price), price, rendezvous=True)
        assert blocking.messages == plain.messages


@few
@given(st.data())
def test_corruption_is_always_refused_with_its_cell(data):
    schedule = data.draw(schedules())
    if data.draw(st.booleans()):
        schedule = lower(schedule)
    ranks = [list(program) for program in schedule.ranks]
    rank = data.draw(st.integers(0, len(ranks) - 1))
    place = data.draw(st.integers(0, len(ranks[rank]) - 1))
    item = ranks[rank][place]
    kind = data.draw(st.sampled_from(["drop", "repeat", "rename", "restage", "postpone"]))
    if kind == "drop":
        del ranks[rank][place]
    elif kind == "repeat":
        ranks[rank].insert(data.draw(st.integers(0, len(ranks[rank]))), item)
    elif kind == "rename":
        ranks[rank][place] = Action(
            Kind.F, item.parts[0].stage, (schedule.num_micro_batches,), item.parts[0].replica
        )
    elif kind == "restage":
        ranks[rank][place] = Action(Kind.F, schedule.num_stages, (0,))
    else:
        # Nothing may follow the STEP of its own stage.
        (step,) = [i for i, other in enumerate(ranks[rank]) if str(other) == str(_step_of(item))]
        if step == place:
            ranks[rank].insert(0, ranks[rank].pop(step))
        else:
            ranks[rank].insert(step, ranks[rank].pop(place))
            if item.parts[0].kind in (Kind.SEND_F, Kind.SEND_B, Kind.RECV_F, Kind.RECV_B):
                return
    with pytest.raises(InputError) as caught:
        check(schedule.with_ranks(ranks))
    assert ">" in str(caught.value) and "<" in str(caught.value) and "rank" in str(caught.value)


@few
@given(st.data())
def test_two_actions_that_swap_are_refused_or_harmless(data):
    schedule = data.draw(schedules())
    ranks = [list(program) for program in schedule.ranks]
    rank = data.draw(st.integers(0, len(ranks) - 1))
    places = st.integers(0, len(ranks[rank]) - 1)
    first, second = data.draw(places), data.draw(places)
    ranks[rank][first], ranks[rank][second] = ranks[rank][second], ranks[rank][first]
    swapped = schedule.with_ranks(ranks)
    try:
        check(swapped)
    except InputError:
        return
    times = computations(simulate(swapped))
    for bar in simulate(swapped).timeline:
        if bar.action.kind not in (Kind.REDUCE, Kind.STEP):
            for need in predecessors(swapped, bar.action):
                assert bar.start >= times[need.kind, need.stage, need.micro_batch, need.replica][1]


def _step_of(item):
    return Action(Kind.STEP, item.parts[0].stage, (), item.parts[0].replica)


@few
@given(st.data())
def test_exact_chunks_run_under_fill_drain_whatever_they_read(data):
    schedule = data.draw(schedules(names=("gpipe", "gpipe_2bp")))
    chunks = st.integers(0, schedule.num_micro_batches - 1)
    reads = data.draw(
        st.lists(st.sets(chunks), min_size=schedule.num_micro_batches, max_size=schedule.num_micro_batches)
    )
    rows = tuple(tuple(sorted(row)) for row in reads)
    check(schedule, batch="chunk", neighbours="exact", reads=rows)
    dependencies = dependencies_for("chunk", "exact", reads=rows)
    result = simulate(schedule, dependencies=dependencies)
    times = computations(result)
    for bar in result.timeline:
        if bar.action.kind in (Kind.F, Kind.B, Kind.I):
            for need in predecessors(schedule, bar.action, dependencies):
                assert bar.start >= times[need.kind, need.stage, need.micro_batch, need.replica][1]
