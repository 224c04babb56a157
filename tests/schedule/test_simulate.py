import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import Costs, Schedule, fill_drain, lower, parse_item, simulate
from gnnpar.schedule.families.one_f_one_b import one_f_one_b


def build(*ranks, stages, batches, **more):
    return Schedule("x", stages, batches, tuple(tuple(map(parse_item, r.split())) for r in ranks), **more)


@pytest.mark.parametrize("schedule", [one_f_one_b(4, 8), fill_drain(3, 5), lower(one_f_one_b(3, 4))])
def test_compiled_and_interpreted_loop_agree(schedule):
    costs = Costs(
        F=1.5,
        I=0.5,
        W=0.25,
        message=0.125,
        micro_batches=[1 + i / 8 for i in range(schedule.num_micro_batches)],
    )
    python, compiled = (simulate(schedule, costs, compiled=flag) for flag in (False, True))
    for field in ("makespan", "busy", "idle", "window_idle", "bubble", "peak_in_flight", "messages"):
        assert getattr(python, field) == getattr(compiled, field)
    assert list(python.timeline) == list(compiled.timeline)


def test_uneven_costs():
    schedule = fill_drain(2, 2)
    result = simulate(schedule, Costs(F=[1, 3], B=[2, 4], micro_batches=[1, 2]))
    # Rank 0: F 0-1, 1-3; rank 1: F 1-4, 4-10, B1 10-18, B0 18-22; rank 0: B1 18-22, B0 22-24.
    assert [(str(bar.action), bar.start, bar.end) for bar in result.timeline if bar.end > bar.start] == [
        ("0F0", 0, 1), ("0F1", 1, 3), ("0B1", 18, 22), ("0B0", 22, 24),
        ("1F0", 1, 4), ("1F1", 4, 10), ("1B1", 10, 18), ("1B0", 18, 22),
    ]  # fmt: skip
    assert result.busy == (9, 21) and result.idle == (15, 3)
    assert result.window_idle == (15, 0)
    assert result.bubble == 18 / 48


def test_messages_queue_on_their_link():
    schedule = fill_drain(2, 3)
    slow = simulate(schedule, Costs(F=1, B=1, message=2, message_back=0, links={(0, 1): 2}))
    starts = [bar.start for bar in slow.timeline if str(bar.action).startswith("1F")]
    assert starts == [5, 9, 13]


def test_overlap_of_compounds():
    schedule = build("0F0 (0F1;0B0) 0B1 0STEP", stages=1, batches=2)
    costs = Costs(F=1, B=2)
    serial, full = (simulate(schedule, costs, overlap=mode) for mode in ("serial", "full"))
    assert (serial.makespan, serial.busy) == (6, (6,))
    assert (full.makespan, full.busy) == (5, (5,))
    with pytest.raises(InputError, match="overlap"):
        simulate(schedule, overlap="partly")


def test_several_micro_batches_in_one_action():
    """The doubled forward waits for both inputs; the concatenated W takes the sum of its parts."""
    schedule = build("0F0 0F1 0I0 0I1 0W0-1 0STEP", "1F0-1 1I0 1I1 1W0-1 1STEP", stages=2, batches=2)
    result = simulate(schedule)
    times = {str(bar.action): (bar.start, bar.end) for bar in result.timeline}
    assert times["1F0-1"] == (2, 4) and times["1W0-1"] == (6, 8) and times["0W0-1"] == (7, 9)
    assert result.peak_in_flight == (2, 2)


def test_reduction_runs_beside_computation_and_joins_replicas():
    ranks = (
        "0F0 1F1@1 1B1@1 1REDUCE@1 0B0 0REDUCE 0STEP 1STEP@1",
        "0F1@1 1F0 1B0 1REDUCE 0B1@1 0REDUCE@1 0STEP@1 1STEP",
    )
    schedule = build(*ranks, stages=2, batches=2, placement=((0, 1), (1, 0)))
    free, costly = (simulate(schedule, Costs(F=1, B=1, reduce=cost, step=1)) for cost in (0, 3))
    assert free.makespan == 4 + 2
    # Stage 1 is complete on both ranks at 3, stage 0 at 4; rank 0 may step stage 0 at 4 + 3.
    steps = {str(bar.action): (bar.start, bar.end) for bar in costly.timeline if "STEP" in str(bar.action)}
    assert steps["0STEP"] == (7, 8) and steps["1STEP@1"] == (8, 9)


def test_memory_over_time():
    result = simulate(one_f_one_b(2, 3), Costs(F=1, B=1, activation=[10, 20], micro_batches=[1, 1, 1]))
    assert result.memory(0) == [(0, 10), (1, 20), (4, 10), (4, 20), (6, 10), (8, 0)]
    assert result.peak_bytes == (20, 20)


@pytest.mark.parametrize(
    "costs",
    [
        Costs(F=[1, 2, 3]),
        Costs(F=-1),
        Costs(micro_batches=[1]),
        Costs(micro_batches=[1, -1]),
        Costs(W=float("nan")),
    ],
)
def test_costs_that_do_not_fit_are_refused(costs):
    with pytest.raises(InputError, match="costs"):
        simulate(fill_drain(2, 2), costs)


def test_a_large_schedule_stays_small():
    schedule = one_f_one_b(64, 512)
    result = simulate(schedule)
    assert result.makespan == 3 * (64 + 511)
    assert sum(len(rank.codes.tobytes()) for rank in schedule.ranks) == 8 * 64 * (2 * 512 + 1)
