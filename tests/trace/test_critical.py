"""Critical path and what-if of steps whose answer is known."""

from itertools import pairwise

import pytest
from support.steps import Rank, pipeline, step_of

from gnnpar.trace.critical import critical_path, path_by_category, what_if


def pieces(step):
    path = critical_path(step)
    for one, following in pairwise(path):
        assert following.start == pytest.approx(one.end)
    return [(piece.rank, piece.what, pytest.approx(piece.end - piece.start)) for piece in path]


def test_the_path_goes_through_the_slower_stage():
    assert pieces(pipeline([1.0] * 3, [2.0] * 3)) == [
        (0, "0F0", 1.0),
        (1, "1F0", 2.0),
        (1, "1F1", 2.0),
        (1, "1F2", 2.0),
    ]


def test_a_message_that_is_waited_for_is_on_the_path():
    step = pipeline([2.0, 2.0], [1.0, 1.0], delay=0.5)
    assert pieces(step) == [(0, "0F0", 2.0), (0, "0F1", 2.0), (1, "stage", 0.5), (1, "1F1", 1.0)]
    found = path_by_category(critical_path(step))
    assert found == {"row-wise forward": 5.0, "communication stage": 0.5}


def test_the_last_to_come_to_a_collective_is_on_the_path():
    a = Rank().work(1.0, "STEP").wait(4.0, -1, 0, "control").work(1.0, "STEP")
    b = Rank().work(3.5, "input").wait(4.0, -1, 0, "control")
    assert pieces(step_of(a, b)) == [(1, "0input0", 3.5), (0, "control", 0.5), (0, "0STEP0", 1.0)]


def test_what_if():
    found = what_if(pipeline([1.0] * 4, [3.0] * 4, delay=0.5))
    assert found.measured == found.replayed == pytest.approx(13.5)
    assert found.free_network == pytest.approx(13.0)
    # Two seconds each, five of them in a row, and a message that takes half a second.
    assert found.balanced == pytest.approx(10.5)


def test_nothing_is_nothing():
    assert critical_path(step_of()) == [] and what_if(step_of()).measured == 0.0
