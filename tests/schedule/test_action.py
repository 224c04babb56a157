import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnpar.errors import InputError
from gnnpar.schedule import Action, Compound, Kind, Program, parse_item

PEERED = {Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B}
WHOLE = {Kind.REDUCE, Kind.STEP}


@st.composite
def actions(draw):
    kind = draw(st.sampled_from(Kind))
    batches = (
        ()
        if kind in WHOLE
        else tuple(sorted(draw(st.sets(st.integers(0, 2**20 - 1), min_size=1, max_size=9))))
    )
    peer = draw(st.integers(0, 2**15 - 2)) if kind in PEERED else None
    return Action(kind, draw(st.integers(0, 2**15 - 1)), batches, draw(st.integers(0, 31)), peer)


items = st.one_of(
    actions(), st.lists(actions(), min_size=2, max_size=3).map(lambda parts: Compound(tuple(parts)))
)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(Kind.F, 2, (0,))),
        ("2F0@1", Action(Kind.F, 2, (0,), 1)),
        ("2W0-7", Action(Kind.W, 2, tuple(range(8)))),
        ("2W0,2-3", Action(Kind.W, 2, (0, 2, 3))),
        ("2REDUCE@1", Action(Kind.REDUCE, 2, (), 1)),
        ("12STEP", Action(Kind.STEP, 12)),
        ("2SEND_F0>3", Action(Kind.SEND_F, 2, (0,), 0, 3)),
        ("3RECV_F0<2@1", Action(Kind.RECV_F, 3, (0,), 1, 2)),
        ("(2F3;2B1)", Compound((Action(Kind.F, 2, (3,)), Action(Kind.B, 2, (1,))))),
    ],
)
def test_text_form(text, action):
    assert str(action) == text
    assert parse_item(text) == action


@given(items)
def test_text_round_trips(item):
    assert parse_item(str(item)) == item


@given(st.lists(items, max_size=12))
def test_program_gives_back_its_items(listed):
    program = Program(listed)
    assert len(program) == len(listed)
    assert list(program) == listed
    assert program.texts() == [str(item) for item in listed]
    assert program == Program(listed) and hash(program) == hash(Program(listed))
    assert program[1:] == tuple(listed[1:])


@pytest.mark.parametrize("text", ["", "F0", "2G0", "2F", "2f0", "02F0", "2F3-3", "2F0@0", "(2F0;)", "2F0 "])
def test_other_text_is_refused(text):
    with pytest.raises(InputError, match="schedule"):
        Program([parse_item(text)])


def test_a_micro_batch_beyond_the_code_is_refused():
    with pytest.raises(InputError, match="micro-batches"):
        Program([Action(Kind.F, 0, (1 << 20,))])
