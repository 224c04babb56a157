"""Third-party partitioners run in a child process: whatever they do, the parent survives with a message."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnpar.errors import RunError
from gnnpar.partition.child import call_in_child

METHOD = """
import os, signal, sys, time
import numpy as np

def double(values, number):
    print("chatter")
    return values * number

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def crashed():
    os.kill(os.getpid(), signal.SIGSEGV)

def failed():
    raise MemoryError("no room for 7 edges")

def endless():
    time.sleep(100)

def imported():
    return np.array([name in sys.modules for name in ("torch", "gnnpar")])

def orphan(pid_file, seconds):
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(seconds)
"""


@pytest.fixture
def method(tmp_path):
    file = tmp_path / "method.py"
    file.write_text(METHOD)
    return file


def test_arguments_and_result_travel(method):
    assert call_in_child(method, "double", 60, values=[1, 2], number=3).tolist() == [3, 6]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("killed", "partitioner method: killed by SIGKILL, most often for want of memory; .*ldg"),
        ("crashed", "killed by SIGSEGV; "),
        ("failed", r"failed with exit code 1 \(MemoryError: no room for 7 edges\)"),
    ],
)
def test_a_child_that_dies_is_an_error(method, function, message):
    with pytest.raises(RunError, match=message):
        call_in_child(method, function, 60)


def test_a_child_that_overruns_is_ended(method):
    with pytest.raises(RunError, match=r"not done after 0\.5 s, ended"):
        call_in_child(method, "endless", 0.5)


def test_the_child_starts_without_torch(method):
    assert not call_in_child(method, "imported", 60).any()


def running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks at processes by /proc, which is Linux's")
def test_no_child_outlives_a_killed_parent(method, tmp_path):
    pid_file = tmp_path / "pid"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from gnnpar.partition.child import call_in_child; "
            "call_in_child(Path(sys.argv[1]), 'orphan', 60, pid_file=sys.argv[2], seconds=60)",
            str(method),
            str(pid_file),
        ]
    )
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.02)
    child = int(pid_file.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while running(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)
