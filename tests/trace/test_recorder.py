"""Spans and byte counts of a rank."""

import pytest

from gnnpar.trace import Recorder


def test_spans_add_up_by_kind_and_nest():
    recorder = Recorder(keep_events=True)
    with recorder.span("F", "0F1"), recorder.span("wait", "a message"):
        pass
    with recorder.span("F", "0F2"):
        pass
    assert [(event.kind, event.what) for event in recorder.events] == [
        ("wait", "a message"),
        ("F", "0F1"),
        ("F", "0F2"),
    ]
    wait, first, second = recorder.events
    assert first.start <= wait.start <= wait.end <= first.end <= second.start <= second.end
    assert recorder.seconds["F"] == pytest.approx(first.end - first.start + second.end - second.start)
    assert recorder.seconds["wait"] == pytest.approx(wait.end - wait.start)


def test_a_span_that_fails_still_counts():
    recorder = Recorder(keep_events=True)
    with pytest.raises(ZeroDivisionError), recorder.span("B"):
        _ = 1 / 0
    assert len(recorder.events) == 1 and "B" in recorder.seconds


def test_events_are_kept_only_where_asked_for():
    recorder = Recorder()
    with recorder.span("F"):
        pass
    assert recorder.events == [] and set(recorder.seconds) == {"F"}


def test_bytes_and_messages_are_counted_by_kind_and_peer():
    recorder = Recorder()
    recorder.count_bytes("stage", 1, 100)
    recorder.count_bytes("stage", 1, 20)
    recorder.count_bytes("stage", 0, 3)
    recorder.count_bytes("evaluation", 1, 7)
    assert recorder.bytes_sent == {("stage", 1): 120, ("stage", 0): 3, ("evaluation", 1): 7}
    assert recorder.messages_sent == {("stage", 1): 2, ("stage", 0): 1, ("evaluation", 1): 1}
    assert recorder.bytes_by_kind() == {"stage": 123, "evaluation": 7}


def test_a_new_epoch_starts_from_nothing():
    recorder = Recorder(keep_events=True)
    kept = recorder.events
    with recorder.span("F", "0F0"):
        recorder.count_bytes("stage", 1, 5)
    events = recorder.events
    recorder.reset()
    assert recorder.events == [] and not recorder.seconds and recorder.bytes_by_kind() == {}
    assert not recorder.messages_sent
    assert events is kept and len(events) == 1  # who took the last epoch's events keeps them
