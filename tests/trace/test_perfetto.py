"""trace.json against the Chrome trace format: every event by its phase, spans nested, arrows in pairs."""

import json
import time

import pytest

from gnnpar.trace import EventLog, Recorder, read_log
from gnnpar.trace.perfetto import write_perfetto

SCHEMA = {
    "M": {"pid": int, "tid": int, "name": str, "args": dict},
    "X": {
        "pid": int,
        "tid": int,
        "name": str,
        "cat": str,
        "ts": (int, float),
        "dur": (int, float),
        "args": dict,
    },
    "C": {"pid": int, "tid": int, "name": str, "ts": (int, float), "args": dict},
    "s": {"pid": int, "tid": int, "name": str, "cat": str, "ts": (int, float), "id": str},
    "f": {"pid": int, "tid": int, "name": str, "cat": str, "ts": (int, float), "id": str, "bp": str},
}


@pytest.fixture
def logs(tmp_path):
    """Two ranks, three epochs: the first sends to the second in each."""
    recorders = [Recorder(EventLog(tmp_path / f"{rank}.events", {"rank": rank})) for rank in range(2)]
    first, second = recorders
    for epoch in range(1, 4):
        for recorder in recorders:
            recorder.start_epoch(epoch)
        start = time.perf_counter()
        with first.span("F", "0F0", stage=0, batch=0), first.span("aggregate", layer=2):
            pass
        with first.span("send", "stage", peer=1, tag=64, size=100, sent=True):
            pass
        with second.span("post", "stage", peer=0, tag=64):
            pass
        with second.span("wait", "stage", peer=0, tag=64, size=100):
            pass
        for recorder in recorders:
            recorder.add("step", start, batch=epoch - 1)
    for recorder in recorders:
        recorder.end_epoch()
        recorder.close()
    return [read_log(tmp_path / f"{rank}.events") for rank in range(2)]


def written(logs, path, **keys):
    count = write_perfetto(logs, path, **keys)
    found = json.loads(path.read_text())
    assert set(found) == {"displayTimeUnit", "traceEvents"}
    events = found["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == count
    return events


def test_events_are_what_the_format_wants(logs, tmp_path):
    for event in written(logs, tmp_path / "trace.json"):
        kinds = SCHEMA[event["ph"]]
        assert set(event) == {"ph", *kinds}
        assert all(isinstance(event[key], kind) for key, kind in kinds.items())


def test_all_events_are_there_and_spans_nest(logs, tmp_path):
    events = written(logs, tmp_path / "trace.json")
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "rank 0, column 0, way 0",
        "rank 1, column 1, way 0",
    }
    for log in logs:
        spans = [event for event in events if event["ph"] == "X" and event["pid"] == log.rank]
        assert len(spans) == len(log.events)
        open_until = []
        for span in spans:  # outer ones first
            end = span["ts"] + span["dur"]
            while open_until and open_until[-1] <= span["ts"] + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-2
            open_until.append(end)
    action = next(event for event in events if event["name"] == "0F0")
    assert action["cat"] == "F" and action["args"] == {"stage": 0, "batch": 0}
    send = next(event for event in events if event["name"] == "send stage")
    assert send["args"] == {"peer": 1, "bytes": 100}


def test_arrows_join_sends_and_waits(logs, tmp_path):
    events = written(logs, tmp_path / "trace.json")
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == 3 and starts.keys() == ends.keys()
    assert all(starts[one]["ts"] <= ends[one]["ts"] for one in starts)
    assert {event["pid"] for event in starts.values()} == {0}


def test_of_a_long_trace_the_last_epochs_are_written(logs, tmp_path):
    events = written(logs, tmp_path / "trace.json", most=20)
    assert {event["name"] for event in events if event["ph"] == "X" and event["cat"] == "epoch"} == {
        "epoch 2",
        "epoch 3",
    }
