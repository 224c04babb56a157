"""Spans, byte counts and epochs of a rank, with and without a log."""

import pytest

from gnnpar.trace import EventLog, Recorder, read_log


def test_spans_add_up_by_kind_and_nest():
    recorder = Recorder()
    with recorder.span("F", "0F1"), recorder.span("wait", "stage"):
        pass
    first = recorder.seconds["F"]
    assert first >= recorder.seconds["wait"] > 0
    with recorder.span("F", "0F2"):
        pass
    assert recorder.seconds["F"] > first
    assert set(recorder.seconds) == {"F", "wait"}


def test_a_span_that_fails_still_counts():
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), recorder.span("B"):
        _ = 1 / 0
    assert "B" in recorder.seconds


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
    recorder = Recorder()
    recorder.start_epoch(1)
    with recorder.span("F", "0F0"):
        recorder.count_bytes("stage", 1, 5)
    recorder.start_epoch(2)
    assert not recorder.seconds and recorder.bytes_by_kind() == {} and not recorder.messages_sent


def test_the_log_gets_spans_epochs_and_what_was_sent(tmp_path):
    recorder = Recorder(EventLog(tmp_path / "log", {"rank": 3}))
    recorder.start_epoch(1)
    with recorder.span("F", "0F1", stage=0, batch=1):
        recorder.count_bytes("stage", 1, 100)
        with recorder.span("send", "stage", peer=1, tag=1 << 30, size=100, sent=True):
            pass
    recorder.end_epoch()
    recorder.close()
    log = read_log(tmp_path / "log")
    assert [log.texts[kind] for kind in log.events["kind"]] == ["send", "F", "epoch"]
    send, action, epoch = log.events
    assert epoch["start"] <= action["start"] <= send["start"] <= send["end"] <= action["end"] <= epoch["end"]
    assert log.texts[send["text"]] == "stage" and log.texts[action["text"]] == "0F1"
    assert (send["peer"], send["tag"], send["bytes"], send["sent"]) == (1, 1 << 30, 100, 1)
    assert (action["stage"], action["batch"], action["layer"], action["peer"]) == (0, 1, -1, -1)
    assert epoch["batch"] == 1 and log.rank == 3 and not log.cut
    (note,) = log.notes
    assert note["epoch"] == 1 and note["sent"] == [["stage", 1, 100, 1]] and note["resident_bytes"] > 0


def test_epochs_between_the_recorded_ones_leave_only_sums(tmp_path):
    recorder = Recorder(EventLog(tmp_path / "log", {"rank": 0}), every=3)
    for epoch in range(1, 6):
        recorder.start_epoch(epoch)
        with recorder.span("F"):
            pass
        assert recorder.seconds["F"] > 0
    recorder.end_epoch()
    recorder.close()
    log = read_log(tmp_path / "log")
    assert [event["batch"] for event in log.events if log.texts[event["kind"]] == "epoch"] == [1, 4]
    assert len(log.events) == 4 and [note["epoch"] for note in log.notes] == [1, 4]


def test_a_span_ends_when_the_device_is_done(tmp_path):
    calls = []
    recorder = Recorder(EventLog(tmp_path / "log", {"rank": 0}), 2, lambda: calls.append("settled"))
    for epoch in (1, 2):
        recorder.start_epoch(epoch)
        with recorder.span("F"):
            pass
    recorder.end_epoch()
    recorder.close()
    assert calls == ["settled"] * 2  # the span and the epoch of the one that is recorded


def test_an_epoch_that_fails_stays_incomplete(tmp_path):
    recorder = Recorder(EventLog(tmp_path / "log", {"rank": 0}))
    recorder.start_epoch(1)
    with pytest.raises(ZeroDivisionError), recorder.span("F"):
        _ = 1 / 0
    recorder.close()
    log = read_log(tmp_path / "log")
    assert [log.texts[kind] for kind in log.events["kind"]] == ["F"] and log.notes == [] and not log.cut
