"""The file of a rank's events: what is written is read again, up to wherever it was cut off."""

import os
import signal
import subprocess
import sys

import pytest

from gnnpar.errors import InputError
from gnnpar.trace import EventLog, read_log


def fill(log, count, at=0.0):
    for number in range(count):
        log.add("F", f"0F{number % 5}", at + number, at + number + 0.5, 0, number, -1, -1, 0, 0, False)


def test_more_events_than_there_is_room_for_are_all_read_back(tmp_path):
    log = EventLog(tmp_path / "log", {"rank": 1, "offset": -2.0})
    fill(log, 40_000)
    log.note({"epoch": 1})
    log.close()
    log.close()
    found = read_log(tmp_path / "log")
    assert found.events["batch"].tolist() == list(range(40_000))
    assert found.events["start"][7] == 5.0 and found.events["end"][7] == 5.5  # on the clock of rank 0
    assert found.texts == ["F", *(f"0F{number}" for number in range(5))]
    assert found.notes == [{"epoch": 1}] and not found.cut and found.about["rank"] == 1


def test_a_log_cut_anywhere_is_read_up_to_there(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path, {"rank": 0})
    start = path.stat().st_size
    sizes = []
    for epoch in range(3):
        fill(log, 10, 100.0 * epoch)
        log.note({"epoch": epoch})
        sizes.append(path.stat().st_size)
    log.close()
    whole = path.read_bytes()
    for length in range(start, len(whole) + 1):
        path.write_bytes(whole[:length])
        found = read_log(path)
        complete = sum(size <= length for size in sizes)
        assert len(found.notes) == complete
        assert 10 * complete <= len(found.events) <= 30
        assert found.events["end"].tolist() == [
            100.0 * (n // 10) + n % 10 + 0.5 for n in range(len(found.events))
        ]
        assert found.cut == (length not in (start, *sizes) and _inside_a_block(whole, length))


def _inside_a_block(content, length):
    at = content.index(b"\n") + 1
    ends = {at}
    while at < len(content):
        at += 8 + int.from_bytes(content[at + 4 : at + 8], "little")
        ends.add(at)
    return length not in ends


def test_what_is_no_log_is_refused(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="not a log of events"):
        read_log(path)
    EventLog(path, {"rank": 0}).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    with pytest.raises(InputError, match="cut off before its first event"):
        read_log(path)
    path.write_bytes(whole + b"OOPS\x01\x00\x00\x00x")
    with pytest.raises(InputError, match=f"damaged at byte {len(whole)}"):
        read_log(path)


def test_a_killed_process_leaves_its_finished_epochs(tmp_path):
    code = """
import sys
from gnnpar.trace import EventLog, Recorder
recorder = Recorder(EventLog(__import__("pathlib").Path(sys.argv[1]), {"rank": 0}))
for epoch in range(1, 4):
    recorder.start_epoch(epoch)
    for number in range(100):
        with recorder.span("F", "0F0", batch=number):
            pass
print("third epoch under way", flush=True)
sys.stdin.read()
"""
    path = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    log = read_log(path)
    assert [note["epoch"] for note in log.notes] == [1, 2]
    assert [log.texts[kind] for kind in log.events["kind"]] == (["F"] * 100 + ["epoch"]) * 2
