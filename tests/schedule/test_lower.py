import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import Compound, Costs, Kind, Schedule, check, fill_drain, lower, parse_item, simulate
from gnnpar.schedule.families.one_f_one_b import one_f_one_b

PLAN = "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1 0STEP 1STEP"

GOLDEN = """\
rank 0: 0F0 0SEND_F0>1 0F1 0SEND_F1>1 0RECV_B1<1 0B1 0RECV_B0<1 0B0 0STEP
rank 1: 1RECV_F0<0 1F0 1RECV_F1<0 1F1 1B1 1SEND_B1>0 1B0 1SEND_B0>0 1STEP
"""


def test_sends_follow_producers_and_receives_precede_consumers():
    assert lower(fill_drain(2, 2)).to_text().endswith(GOLDEN)


@pytest.mark.parametrize("family", [fill_drain, one_f_one_b])
@pytest.mark.parametrize("matching", ["asynchronous", "rendezvous", "paired"])
def test_free_messages_change_nothing(family, matching):
    for stages, batches in ((1, 3), (2, 1), (3, 4), (4, 9)):
        schedule = family(stages, batches)
        lowered = lower(schedule, matching=matching)
        result = simulate(lowered, rendezvous=matching != "asynchronous")
        plain = simulate(schedule)
        assert (result.makespan, result.busy, result.messages) == (plain.makespan, plain.busy, plain.messages)
        check(lower(schedule))


def test_asynchronous_messages_cost_the_same_written_out_or_not():
    costs = Costs(F=2, B=3, message=0.75, latency=0.5, message_back=1.25)
    for stages, batches in ((2, 3), (4, 7)):
        schedule = one_f_one_b(stages, batches)
        assert simulate(lower(schedule), costs).makespan == simulate(schedule, costs).makespan


def test_blocking_sends_in_asynchronous_order_deadlock_and_are_refused():
    lowered = lower(one_f_one_b(3, 4))
    simulate(lowered)
    with pytest.raises(InputError, match="deadlock"):
        simulate(lowered, rendezvous=True)


@pytest.mark.parametrize("num_ranks", [3, 4, 8])
def test_bapipe_synchronous_communication(num_ranks):
    """BaPipe's 1F1B-SNO: T = (M+N−1)(F+B) + (N+M−2)·2SR, exact on full-duplex ports."""
    for batches in (num_ranks, 2 * num_ranks, 3 * num_ranks + 1):
        compute = Costs(F=1, B=2)
        lowered = lower(one_f_one_b(num_ranks, batches), matching="paired", costs=compute)
        result = simulate(lowered, Costs(F=1, B=2, message=0.25), rendezvous=True)
        assert result.makespan == (batches + num_ranks - 1) * 3 + (num_ranks + batches - 2) * 0.5


def test_half_duplex_communication_is_slower():
    lowered = lower(one_f_one_b(3, 6), matching="rendezvous", costs=Costs(F=1, B=2))
    assert simulate(lowered, Costs(F=1, B=2, message=0.25), rendezvous=True).makespan == 29.5


def test_exchanges_are_compounds_of_one_send_and_one_receive():
    lowered = lower(one_f_one_b(3, 6), matching="paired")
    found = [item for rank in lowered.ranks for item in rank if isinstance(item, Compound)]
    assert found
    for item in found:
        assert sum(part.kind in (Kind.SEND_F, Kind.SEND_B) for part in item.parts) == 1 == len(item.parts) - 1


def test_no_messages_between_stages_on_one_rank():
    schedule = fill_drain(2, 2)
    items = [parse_item(text) for text in PLAN.split()]
    lowered = lower(Schedule("one rank", 2, 2, (tuple(items),), placement=((0, 0),)))
    assert list(lowered.ranks[0]) == items
    assert simulate(schedule).makespan > 0


def test_two_ranks_see_their_messages_in_one_order():
    """Rank 1 needs 3F0 before 1F1, but rank 0 sends 0F1 first: its receive is posted earlier."""
    ranks = (
        "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0 0STEP 2STEP",
        "1F0 3F0 1F1 3F1 3B1 3B0 1B1 1B0 1STEP 3STEP",
    )
    programs = tuple(tuple(map(parse_item, rank.split())) for rank in ranks)
    lowered = lower(Schedule("x", 4, 2, programs, placement=((0, 1, 0, 1),)))
    check(lowered)
    assert "1RECV_F1<0 3RECV_F0<2 3F0" in " ".join(map(str, lowered.ranks[1]))


def test_lowering_twice_is_refused():
    with pytest.raises(InputError, match="already"):
        lower(lower(fill_drain(2, 2)))
    with pytest.raises(InputError, match="matching"):
        lower(fill_drain(2, 2), matching="magic")
