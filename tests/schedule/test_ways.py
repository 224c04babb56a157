"""Ranks of a schedule that several processes share: reductions, times, and what is refused."""

import pytest

from gnnpar.config import compose
from gnnpar.config.schema import BatchConfig, ParallelConfig, RunConfig, ScheduleConfig
from gnnpar.errors import InputError
from gnnpar.schedule import Costs, Kind, Schedule, check, lower, simulate, whole, with_reductions
from gnnpar.schedule.families import FAMILIES
from gnnpar.schedule.reductions import reduced
from gnnpar.train.order import build_schedule


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "zb_h1", "interleaved", "naive_2bp"])
def test_stages_of_shared_ranks_are_reduced_after_their_last_backward(name):
    plain = FAMILIES[name](2, 4)
    schedule = with_reductions(plain, [1])
    assert reduced(schedule) == {(0, stage) for _, stage in plain.stages_on(1)} and not reduced(plain)
    assert schedule.ranks[0] == plain.ranks[0]
    check(schedule)
    check(lower(schedule))
    for _, stage in plain.stages_on(1):
        parts = [part for item in schedule.ranks[1] for part in item.parts if part.stage == stage]
        kinds = [part.kind for part in parts]
        last = max(at for at, kind in enumerate(kinds) if kind in (Kind.B, Kind.W))
        assert kinds[last + 1 :] == [Kind.REDUCE, Kind.STEP]
    assert with_reductions(schedule, [1]) == schedule
    assert Schedule.from_text(schedule.to_text()) == schedule


def test_what_is_reduced_already_stays():
    schedule = FAMILIES["chimera"](4, 4)
    assert with_reductions(schedule, range(4)) == schedule


@pytest.mark.parametrize("name", ["gpipe", "chimera", "bitpipe", "zb_v"])
@pytest.mark.parametrize("shared", [[], [0]])
def test_an_exact_step_reduces_and_updates_every_copy(name, shared):
    """The first replica runs it; all holders reduce where the schedule does."""
    schedule = with_reductions(FAMILIES[name](2, 4), shared)
    exact = whole(schedule)
    check(exact)
    check(lower(exact))
    assert reduced(exact) == reduced(schedule) and exact.placement == schedule.placement
    steps = [(p.replica, p.stage) for r in exact.ranks for i in r for p in i.parts if p.kind == Kind.STEP]
    assert sorted(steps) == [(r, s) for r in range(schedule.num_replicas) for s in range(schedule.num_stages)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["gpipe", "chimera", "zb_h1"])
def test_a_rank_of_g_ways_computes_g_times_faster(name, compiled):
    schedule = FAMILIES[name](2, 4)
    one = simulate(schedule, Costs(F=6, I=6, W=6), compiled=compiled)
    several = simulate(schedule, Costs(F=6, I=6, W=6, ways=[2, 1], activation=8), compiled=compiled)
    assert several.busy == (one.busy[0] / 2, one.busy[1])
    assert several.peak_bytes[0] <= several.peak_in_flight[0] * 4
    both = simulate(schedule, Costs(F=6, I=6, W=6, ways=3), compiled=compiled)
    assert both.makespan == one.makespan / 3 and both.bubble == one.bubble


def test_unequal_ways_balance_unequal_stages():
    """Two ways make up for a stage twice as heavy: GPipe's bubble, as of equal stages."""
    heavy = simulate(FAMILIES["gpipe"](2, 4), Costs(F=[2, 1], I=[2, 1], W=[2, 1], ways=[2, 1]))
    assert heavy.makespan == simulate(FAMILIES["gpipe"](2, 4)).makespan
    assert heavy.bubble == pytest.approx(1 / 5)


@pytest.mark.parametrize("ways", [[1], [1, 1, 1], [1, 0], 0.5])
def test_ways_that_do_not_fit_a_schedule_are_refused(ways):
    with pytest.raises(InputError, match=r"ways: "):
        simulate(FAMILIES["gpipe"](2, 4), Costs(ways=ways))


def test_a_configuration_with_ways_has_a_reduced_schedule():
    config = RunConfig(
        parallel=ParallelConfig(stages=2, ways=(2, 1)),
        batch=BatchConfig(num_chunks=4, kind="clusters"),
        schedule=ScheduleConfig(name="dapple_pa"),
    )
    assert reduced(build_schedule(config)) == {(0, 0)}


def test_all_that_is_wrong_with_ways_is_said_at_once():
    with pytest.raises(InputError) as caught:
        compose(["system=gnnpipe", "parallel.stages=3", "parallel.ways=[2,1]", "train.lr=0"])
    text = str(caught.value)
    assert "parallel.ways: 2 numbers for parallel.stages=3; give one a stage" in text
    assert "train.lr: must be positive" in text


@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ("0", "parallel.ways: must be at least 1"),
        ("[2,0]", "parallel.ways: must be at least 1"),
        ("[]", "parallel.ways: 0 numbers for parallel.stages=2"),
        ("two", "parallel.ways: must be an integer, got 'two'"),
        ("[1.5,1]", "parallel.ways: must be an integer, got 1.5"),
        ("null", "parallel.ways: must be an integer, got None"),
    ],
)
def test_what_ways_may_be(ways, words):
    with pytest.raises(InputError) as caught:
        compose(["system=dapple_pa", f"parallel.ways={ways}"])
    assert words in str(caught.value)
