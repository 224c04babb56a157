import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import (
    Action,
    Dependencies,
    Kind,
    Schedule,
    check,
    dependencies_for,
    fill_drain,
    lower,
    parse_item,
    predecessors,
    simulate,
)
from gnnpar.schedule.families.one_f_one_b import one_f_one_b

CHUNKS = {"batch": "chunk", "neighbours": "history", "gradient": "accumulate"}


def changed(schedule, rank, change):
    ranks = [list(program) for program in schedule.ranks]
    change(ranks[rank])
    return schedule.with_ranks(ranks)


def swap(first, second):
    def change(items):
        items[first], items[second] = items[second], items[first]

    return change


@pytest.mark.parametrize(
    ("rank", "change", "words"),
    [
        (1, lambda items: items.pop(0), ["nowhere in the schedule", ">1B0<"]),
        (1, lambda items: items.pop(), ["1STEP missing", ">missing<"]),
        (0, lambda items: items.insert(0, items[0]), ["twice", ">0F0<"]),
        (1, swap(0, 3), ["comes later on the same rank", ">1B0<"]),
        (2, lambda items: items.append(parse_item("1F0")), ["placed on rank 1", ">1F0<"]),
        (2, lambda items: items.append(parse_item("2F9")), ["out of range", ">2F9<"]),
        (2, lambda items: items.append(parse_item("2SEND_F0>1")), ["no edge", ">2SEND_F0>1<"]),
        (2, lambda items: items.insert(1, parse_item("2W0")), ["comes later", ">2W0<"]),
        (2, lambda items: items.append(parse_item("2W0")), ["twice", ">2W0<"]),
    ],
)
def test_corruption_is_refused_with_the_cell(rank, change, words):
    schedule = one_f_one_b(3, 4)
    check(schedule)
    with pytest.raises(InputError) as caught:
        check(changed(schedule, rank, change))
    for word in words:
        assert word in str(caught.value)


def test_deadlock_between_ranks_names_the_whole_circle():
    """Each rank waits for the other: rank 0 wants B0 first, rank 1 wants F1 before B0."""
    schedule = Schedule.from_text(fill_drain(2, 2).to_text().replace("0F0 0F1 0B1 0B0", "0F0 0B0 0F1 0B1"))
    with pytest.raises(InputError, match=r"deadlock: .*rank 0.*rank 1"):
        check(schedule)


def test_missing_micro_batch():
    schedule = fill_drain(2, 3)
    ranks = [[item for item in rank if item.parts[0].micro_batches != (2,)] for rank in schedule.ranks]
    with pytest.raises(InputError, match="missing"):
        check(schedule.with_ranks(ranks))


def test_split_backward_needs_both_halves():
    halves = "0F0 0I0 0W0 0STEP", "0F0 0I0 0STEP", "0F0 0W0 0I0 0STEP"
    good, *bad = (fill_drain(1, 1).with_ranks([map(parse_item, text.split())]) for text in halves)
    check(good)
    for schedule in bad:
        with pytest.raises(InputError, match=r"0W0|0B0"):
            check(schedule)


def test_lowered_schedules_are_checked_for_their_messages():
    lowered = lower(fill_drain(2, 2))
    check(lowered)
    for rank, place, word in ((0, 1, "0SEND_F0"), (1, 0, "1RECV_F0"), (0, 4, "0RECV_B1")):
        with pytest.raises(InputError, match=word):
            check(changed(lowered, rank, lambda items, place=place: items.pop(place)))
    with pytest.raises(InputError, match="1RECV_F1<0 is received where rank 0 sends 0SEND_F0"):
        check(changed(lowered, 1, lambda items: items.insert(0, items.pop(2))))


def test_chunks_that_accumulate_gradients_need_backwards_in_reverse():
    check(fill_drain(3, 4), **CHUNKS)
    with pytest.raises(InputError) as caught:
        check(one_f_one_b(3, 4), **CHUNKS)
    text = str(caught.value)
    for word in (
        ">0B0<",
        "waits for 0B1",
        "every chunk computed after it",
        "schedule=gpipe",
        "history.gamma=0",
    ):
        assert word in text
    check(one_f_one_b(3, 4), batch="chunk", neighbours="history", gradient="drop")
    check(one_f_one_b(3, 4), batch="cluster")
    check(one_f_one_b(3, 4), batch="chunk", neighbours="drop")


def test_exact_chunks_wait_for_the_chunks_they_read():
    check(one_f_one_b(2, 4), batch="chunk", neighbours="exact", reads=((0,), (0, 1), (1, 2), (2, 3)))
    ring = ((0, 3), (0, 1), (1, 2), (2, 3))
    check(fill_drain(2, 4), batch="chunk", neighbours="exact", reads=ring)
    with pytest.raises(InputError, match="exact chunks"):
        check(one_f_one_b(2, 4), batch="chunk", neighbours="exact", reads=ring)


def test_predecessors_are_sets():
    schedule = fill_drain(3, 3)
    forward, backward = Action(Kind.F, 1, (1,)), Action(Kind.B, 1, (1,))
    assert set(map(str, predecessors(schedule, forward))) == {"0F1"}
    assert set(map(str, predecessors(schedule, backward))) == {"1F1", "2B1"}
    chunks = dependencies_for("chunk", "history", "accumulate")
    assert set(map(str, predecessors(schedule, forward, chunks))) == {"0F1", "1F0"}
    assert set(map(str, predecessors(schedule, backward, chunks))) == {"1F1", "2B1", "1B2"}
    exact = dependencies_for("chunk", "exact", reads=[(0, 1), (1,), (1, 2)])
    assert set(map(str, predecessors(schedule, Action(Kind.F, 1, (2,)), exact))) == {"0F1", "0F2"}
    assert set(map(str, predecessors(schedule, backward, exact))) == {"1F1", "2B0", "2B1", "2B2"}
    assert set(map(str, predecessors(schedule, Action(Kind.STEP, 2)))) == {"2B0", "2B1", "2B2"}


def test_unknown_choices_are_refused():
    for choice in (
        {"batch": "x"},
        {"batch": "chunk", "neighbours": "x"},
        {"batch": "chunk", "gradient": "x"},
    ):
        with pytest.raises(InputError, match="'x' is not one of"):
            dependencies_for(**choice)


def test_simulation_honours_the_order_of_chunks():
    schedule = fill_drain(2, 3)
    plain = simulate(schedule)
    assert simulate(schedule, dependencies=Dependencies(True, True)).makespan == plain.makespan
