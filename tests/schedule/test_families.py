"""Every family: its published closed forms, its timetable, its golden text."""

import re
from pathlib import Path

import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import Action, Costs, Kind, Schedule, check, lower, parse_item, simulate
from gnnpar.schedule.draw import grid
from gnnpar.schedule.families import FAMILIES

GOLDEN = Path(__file__).parents[1] / "data" / "schedules"
NAMES = (
    "gpipe one_f_one_b dapple_pa dapple_pb bapipe_1f1b_as bapipe_fbp_as bapipe_1f1b_sno bapipe_1f1b_so "
    "looped_bfs interleaved hanayo chimera bitpipe zb_h1 zb_h2 zb_v dualpipe dualpipe_v "
    "naive_2bp gpipe_2bp one_f_one_b_2bp graphpipe gems async_1f1b local_learning"
)
DEPTHS = (2, 3, 4, 8)
HALVES = Costs(F=1, I=1, W=1)
EQUAL = Costs(F=1, B=1)
DOUBLE = Costs(F=1, B=2)


def run(name, stages, batches, costs, **options):
    schedule = FAMILIES[name](stages, batches, **options)
    check(schedule)
    return simulate(schedule, costs)


def test_the_registry_holds_every_family():
    assert sorted(FAMILIES) == sorted(NAMES.split())
    assert all(family.name == key and family.summary and family.paper for key, family in FAMILIES.items())


@pytest.mark.parametrize("name", FAMILIES)
def test_golden_text(name):
    schedule = FAMILIES[name](*FAMILIES[name].example)
    text = (GOLDEN / f"{name}.txt").read_text()
    assert schedule.to_text() == text
    assert Schedule.from_text(text) == schedule


@pytest.mark.parametrize("name", FAMILIES)
def test_docstring_draws_the_timetable(name):
    family = FAMILIES[name]
    drawn = grid(simulate(family(*family.example), Costs(B=1)).timeline, wrap=98)
    shown = re.findall(r"^ +(rank \d.*)$", family.build.__doc__, re.MULTILINE)
    assert [line for line in drawn.splitlines() if line] == shown


@pytest.mark.parametrize("name", FAMILIES)
def test_lowered_schedule_is_legal_and_as_fast(name):
    for stages, batches in (FAMILIES[name].example, (4, 16), (2, 8)):
        schedule = FAMILIES[name](stages, batches)
        check(schedule)
        lowered = lower(schedule)
        check(lowered)
        assert simulate(lowered).makespan == simulate(schedule).makespan
        assert simulate(lowered).messages == simulate(schedule).messages
        rendezvous = lower(schedule, matching="rendezvous")
        # Blocking can only slow down: a sender waits until its receiver is there.
        assert simulate(rendezvous, rendezvous=True).makespan >= simulate(schedule).makespan


@pytest.mark.parametrize("stages", DEPTHS)
@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("gpipe", lambda s, p, m: m),
        ("one_f_one_b", lambda s, p, m: min(p - s, m)),
        ("dapple_pa", lambda s, p, m: min(p - s, m)),
        ("dapple_pb", lambda s, p, m: min(2 * (p - s) - 1, m)),
        ("bapipe_1f1b_as", lambda s, p, m: min(p - s, m)),
        ("bapipe_fbp_as", lambda s, p, m: min(2 * (p - s), m)),
        ("bapipe_1f1b_sno", lambda s, p, m: min(p - s, m)),
        ("bapipe_1f1b_so", lambda s, p, m: min(2 * (p - s), m)),
    ],
)
def test_flushed_pipelines(name, peak, stages, ratio):
    batches = ratio * stages + (ratio == 3)
    result = run(name, stages, batches, Costs(F=2, B=3))
    assert result.makespan == (batches + stages - 1) * 5
    assert set(result.idle) == {(stages - 1) * 5}
    assert result.bubble == pytest.approx((stages - 1) / (batches + stages - 1))
    assert result.peak_in_flight == tuple(peak(s, stages, batches) for s in range(stages))


@pytest.mark.parametrize("stages", DEPTHS)
def test_bapipe_overlapped_messages(stages):
    """1F1B-SO: T = (M+N−1)(F+B) + (N−1)·2SR; 1F1B itself is slower."""
    for batches in (2 * stages, 2 * stages + 2, 4 * stages):
        costs = Costs(F=1, B=2, message=0.25)
        expected = (batches + stages - 1) * 3 + (stages - 1) * 0.5
        assert run("bapipe_1f1b_so", stages, batches, costs).makespan == expected
        assert run("one_f_one_b", stages, batches, costs).makespan > expected


def test_memory_bound_of_dapple():
    result = run("dapple_pa", 4, 8, EQUAL, memory=2)
    assert result.peak_in_flight == (2, 2, 2, 1)
    assert run("dapple_pb", 4, 8, EQUAL, memory=3).peak_in_flight == (3, 3, 3, 1)


def test_advance_of_avgpipe_reaches_from_1f1b_to_gpipe():
    peaks = [run("one_f_one_b", 3, 6, EQUAL, advance=advance).peak_in_flight for advance in range(5)]
    assert peaks[0] == (3, 2, 1) and peaks[1] == (4, 3, 2) and peaks[3] == (6, 5, 4)
    assert run("one_f_one_b", 3, 6, EQUAL, advance=6).peak_in_flight == (6, 6, 6)
    assert run("one_f_one_b", 3, 6, EQUAL, advance=[2, 1, 0]).peak_in_flight == (5, 3, 1)


@pytest.mark.parametrize("stages", DEPTHS)
@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaved_families(stages, ratio, chunks):
    batches = ratio * stages
    costs = Costs(F=2, B=3)
    result = run("interleaved", stages, batches, costs, chunks=chunks)
    assert set(result.idle) == {(stages - 1) * 5}
    assert result.peak_in_flight == tuple(
        min((chunks - 1) * stages + 2 * (stages - 1 - r) + 1, chunks * batches) for r in range(stages)
    )
    assert result.messages == 2 * (stages * chunks - 1) * batches
    breadth = run("looped_bfs", stages, batches, costs, chunks=chunks)
    assert set(breadth.idle) == {(stages - 1) * 5}
    assert set(breadth.peak_in_flight) == {chunks * batches}


@pytest.mark.parametrize("stages", DEPTHS)
@pytest.mark.parametrize("waves", [1, 2, 4])
def test_hanayo(stages, waves):
    result = run("hanayo", stages, stages, EQUAL, waves=waves)
    assert set(result.idle) == {2 * (stages - 1)}
    assert result.bubble == pytest.approx((stages - 1) / (2 * waves * stages + stages - 1))
    assert run("hanayo", 4, 4, EQUAL).peak_in_flight == (5, 6, 7, 8)


def test_hanayo_where_backwards_take_twice_as_long():
    assert run("hanayo", 4, 4, DOUBLE).bubble == pytest.approx(1 / 3)
    # An order made for tB = 2tF would be a little worse here: 13/109.
    assert run("hanayo", 4, 4, DOUBLE, waves=4).bubble == pytest.approx(1 / 9)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_chimera(stages):
    equal, double = run("chimera", stages, stages, EQUAL), run("chimera", stages, stages, DOUBLE)
    assert set(equal.idle) == {stages - 2} and set(double.idle) == {2 * (stages - 2)}
    assert equal.bubble == pytest.approx((stages - 2) / (3 * stages - 2))
    assert double.bubble == pytest.approx((stages - 2) / (1.5 * stages + stages - 2))
    middle = stages // 2
    assert equal.peak_in_flight == tuple(middle + 1 + min(d, stages - 1 - d) for d in range(stages))
    for ratio in (2, 3):
        more = run("chimera", stages, ratio * stages, EQUAL)
        assert set(more.idle) == {stages - 2}
        assert more.peak_in_flight == equal.peak_in_flight
        assert max(run("chimera", stages, ratio * stages, DOUBLE).idle) == (ratio + 1) * (stages - 2)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_bitpipe(stages):
    equal, double = run("bitpipe", stages, stages, EQUAL), run("bitpipe", stages, stages, DOUBLE)
    assert equal.bubble == pytest.approx((stages - 2) / (5 * stages - 2))
    assert double.bubble == pytest.approx((stages - 2) / (4 * stages - 2))
    assert equal.peak_in_flight == tuple(3 * stages // 2 + 1 + min(d, stages - 1 - d) for d in range(stages))
    for ratio in (2, 3):
        assert set(run("bitpipe", stages, ratio * stages, EQUAL).idle) == {stages - 2}


def authors_order_of_bitpipe(depth):
    """The forward and backward orders of the authors' code for M = D, by chunk; see the reference's rules."""
    half, ranks = depth // 2, []
    for rank in range(depth):
        side = rank // half
        near = half - rank if rank < half else rank - half + 1
        away = half - near
        forward = [side] * near + [1 - side, side] * away + [1 - side, 3 - side] * near
        forward += [2 + side, 3 - side] * away + [2 + side] * near
        backward = [2 + side] * near + [3 - side, 2 + side] * away + [3 - side, 1 - side] * near
        backward += [side, 1 - side] * away + [side] * near
        stages = (rank, depth - 1 - rank, 2 * depth - 1 - rank, depth + rank)
        orders = []
        for kind, chunks in ((Kind.F, forward), (Kind.B, backward)):
            taken = [0] * 4
            order = []
            for chunk in chunks:
                order.append(Action(kind, stages[chunk], (2 * taken[chunk] + chunk % 2,), chunk % 2))
                taken[chunk] += 1
            orders.append(order)
        forwards, backwards = orders
        warm = min(depth + half + min(rank, depth - 1 - rank), 2 * depth)
        pairs = [part for pair in zip(forwards[warm:], backwards, strict=False) for part in pair]
        ranks.append([*forwards[:warm], *pairs, *backwards[2 * depth - warm :]])
    return ranks


@pytest.mark.parametrize("depth", [2, 4, 6, 8])
def test_bitpipe_is_the_authors_order_but_for_ties_of_forwards(depth):
    schedule = FAMILIES["bitpipe"](depth, depth)
    closing = [[item for item in rank if item.kind in (Kind.REDUCE, Kind.STEP)] for rank in schedule.ranks]
    authors = authors_order_of_bitpipe(depth)
    theirs = schedule.with_ranks([order + end for order, end in zip(authors, closing, strict=True)])
    check(theirs)
    for costs in (EQUAL, DOUBLE):
        mine, other = simulate(schedule, costs), simulate(theirs, costs)
        assert (mine.makespan, mine.idle) == (other.makespan, other.idle)
        assert mine.peak_in_flight == other.peak_in_flight
    for rank, order in zip(schedule.ranks, authors, strict=True):
        assert [a for a in rank if a.kind == Kind.B] == [a for a in order if a.kind == Kind.B]


def test_bitpipe_reduces_the_first_stages_before_the_last_backward():
    for rank in FAMILIES["bitpipe"](4, 4).ranks:
        kinds = [str(item) for item in rank]
        first = next(place for place, text in enumerate(kinds) if "REDUCE" in text)
        assert any("B" in text for text in kinds[first:])


@pytest.mark.parametrize("stages", DEPTHS)
@pytest.mark.parametrize("costs", [HALVES, Costs(F=2, I=1.5, W=1), Costs(F=1, I=1, W=0.25)])
def test_zero_bubble(stages, costs):
    forward, first, second = costs.F, costs.I, costs.W
    for batches in (stages, 2 * stages - 1, 3 * stages):
        result = run("zb_h1", stages, batches, costs)
        assert set(result.idle) == {(stages - 1) * (forward + first - second)}
        assert set(result.peak_in_flight) == {stages}
    for batches in (2 * stages - 1, 2 * stages, 4 * stages):
        result = run("zb_h2", stages, batches, costs)
        assert result.window_idle[0] == max(0, (stages - 1) * (forward + first - 2 * second))
        assert set(result.peak_in_flight) == {2 * stages - 1}


def test_zero_bubble_outside_its_validity():
    assert run("zb_h1", 4, 3, HALVES).idle[0] == 4
    assert run("zb_h1", 4, 8, Costs(F=1, I=1, W=1.5)).idle[0] == 3
    assert run("zb_h2", 4, 4, HALVES).window_idle[0] == 3


@pytest.mark.parametrize("stages", DEPTHS)
def test_zb_v(stages):
    for batches in (2 * stages - 1, 2 * stages, 3 * stages):
        result = run("zb_v", stages, batches, HALVES)
        assert set(result.window_idle) == {0}
        assert set(result.peak_in_flight) == {2 * stages}


@pytest.mark.parametrize("stages", DEPTHS)
def test_dualpipe_v(stages):
    for batches in (2 * stages, 2 * stages + 1, 4 * stages):
        result = run("dualpipe_v", stages, batches, HALVES)
        assert set(result.idle) == {stages - 1}
        assert set(result.peak_in_flight) == {2 * stages + 1}


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_dualpipe_is_dualpipe_v_on_twice_the_ranks(stages):
    for batches in (2 * stages, 2 * stages + 2, 4 * stages):
        result = run("dualpipe", stages, batches, HALVES)
        assert set(result.idle) == {stages // 2 - 1}
        assert set(result.peak_in_flight) == {stages + 1}


@pytest.mark.parametrize("stages", DEPTHS)
def test_two_stage_backpropagation(stages):
    n = stages
    assert run("naive_2bp", n, 1, HALVES).bubble == pytest.approx(2 * (n - 1) / (2 * n + 1))
    assert run("gpipe_2bp", n, n, HALVES).bubble == pytest.approx(2 * (n - 1) / (2 * (n - 1) + 3 * n))
    assert run("one_f_one_b_2bp", n, n, HALVES).bubble == pytest.approx((n - 1) / (4 * n - 1))
    assert run("one_f_one_b_2bp", n, 2 * n, HALVES).bubble == pytest.approx((n - 1) / (7 * n - 1))
    # The plain schedules that these are compared with.
    assert run("gpipe", n, n, HALVES).bubble == pytest.approx((n - 1) / (2 * n - 1))
    assert run("one_f_one_b", n, 2 * n, HALVES).bubble == pytest.approx((n - 1) / (3 * n - 1))


@pytest.mark.parametrize("batches", [1, 4, 9])
def test_graphpipe(batches):
    result = run("graphpipe", 5, batches, DOUBLE)
    assert result.makespan == (batches + 3 - 1) * 3
    assert set(result.idle) == {(3 - 1) * 3}
    assert result.peak_in_flight == tuple(min(path, batches) for path in (3, 2, 3, 2, 1))
    chain = run("graphpipe", 4, batches, DOUBLE, edges=[(0, 1), (1, 2), (2, 3)])
    assert chain.schedule.ranks == FAMILIES["one_f_one_b"](4, batches).ranks
    diamond = run("graphpipe", 4, batches, DOUBLE, edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
    assert diamond.makespan == (batches + 3 - 1) * 3


@pytest.mark.parametrize("stages", DEPTHS)
def test_gems_keeps_two_micro_batches(stages):
    for batches in (2, 4, 8):
        result = run("gems", stages, batches, DOUBLE)
        assert max(result.peak_in_flight) == 2
        assert result.makespan <= batches // 2 * (4 * stages + 2)


CHUNKS = {"batch": "chunk", "neighbours": "history", "gradient": "accumulate"}


@pytest.mark.parametrize("name", FAMILIES)
def test_which_families_may_accumulate_between_chunks(name):
    schedule = FAMILIES[name](2, 4)
    if name in ("gpipe", "looped_bfs", "gpipe_2bp"):
        check(schedule, **CHUNKS)
    else:
        with pytest.raises(InputError, match="use schedule=gpipe"):
            check(schedule, **CHUNKS)


@pytest.mark.parametrize(
    ("name", "stages", "batches", "word"),
    [
        ("chimera", 3, 4, "use 4"),
        ("chimera", 4, 3, "even"),
        ("bitpipe", 3, 3, "stages.*\n.*micro_batches"),
        ("interleaved", 4, 9, "use 8"),
        ("dualpipe", 4, 6, "at least 8"),
        ("dualpipe_v", 4, 6, "at least 8"),
        ("gems", 2, 3, "even"),
        ("gpipe", 0, 0, "stages.*\n.*micro_batches"),
    ],
)
def test_counts_that_a_family_is_not_defined_for(name, stages, batches, word):
    with pytest.raises(InputError, match=word):
        FAMILIES[name](stages, batches)


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="chunk: not an option of interleaved; known: chunks"):
        FAMILIES["interleaved"](2, 4, chunk=2)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", [1, 3])
def test_async_1f1b_never_waits_between_its_updates(depth, size):
    updates = 4 * depth
    found = run("async_1f1b", depth, updates * size, EQUAL, updates=updates)
    flushed = run("one_f_one_b", depth, updates * size, EQUAL)
    assert (found.makespan, found.peak_in_flight) == (flushed.makespan, flushed.peak_in_flight)
    for rank in range(depth):
        mine = [timed for timed in found.timeline if timed.rank == rank]
        start = min(timed.start for timed in mine if timed.action.kind is Kind.B)
        end = max(timed.end for timed in mine if timed.action.kind is Kind.F)
        assert sum(t.end - t.start for t in mine if start <= t.start and t.end <= end) == end - start
    # Updates between the forward and the backward of a micro-batch, once the pipeline is full: the delay.
    for stage, program in enumerate(found.schedule.ranks):
        steps, seen, delays = 0, {}, set()
        for action in program:
            if action.kind is Kind.F:
                seen[action.micro_batch] = steps
            elif action.kind is Kind.B and action.micro_batch >= depth:
                delays.add(steps - seen[action.micro_batch])
            steps += action.kind is Kind.STEP
        assert steps == updates
        if size == 1:
            assert delays == {depth - 1 - stage}


@pytest.mark.parametrize("depth", DEPTHS)
def test_local_learning_waits_at_its_start_only(depth):
    found = run("local_learning", depth, 12, DOUBLE, updates=6)
    assert found.makespan == 12 * 3 + (depth - 1)
    assert found.window_idle == (0.0,) * depth
    assert found.peak_in_flight == (1,) * depth
    assert found.messages == 12 * (depth - 1)


@pytest.mark.parametrize("name", ["async_1f1b", "local_learning"])
def test_updates_round_trip_and_must_divide(name):
    schedule = lower(FAMILIES[name](3, 6, updates=3))
    check(schedule)
    assert Schedule.from_text(schedule.to_text()) == Schedule.from_json(schedule.to_json()) == schedule
    assert [schedule.update_of(batch) for batch in range(6)] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(InputError, match="updates: 4 must divide the number of micro-batches, 6"):
        FAMILIES[name](3, 6, updates=4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0F0 0B0 0F1 0STEP 0B1 0STEP", None),
        ("0F0 0F1 0B1 0STEP 0B0 0STEP", "0B1: micro-batch 1 belongs to update 1"),
        ("0F0 0F1 0B0 0B1 0STEP 0STEP", "0B1: micro-batch 1 belongs to update 1"),
        ("0F0 0STEP 0F1 0B0 0STEP 0B1", "0STEP is update 0, which takes 1 backwards; there are 0 before it"),
        ("0F0 0F1 0B0 0STEP 0B1", "1 of 2 updates, 0STEP, missing"),
        ("0F0 0F1 0B0 0STEP 0B1 0STEP 0STEP", "0STEP is update 2"),
    ],
)
def test_gradients_of_one_update_stay_apart_from_the_next(text, reason):
    schedule = Schedule("by hand", 1, 2, ([parse_item(item) for item in text.split()],), num_updates=2)
    if reason is None:
        check(schedule)
        return
    with pytest.raises(InputError, match=re.escape(reason)):
        check(schedule)
