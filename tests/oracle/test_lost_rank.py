"""A rank that dies or hangs ends the whole run within ten seconds: it is named, and no process is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
END_S = 10.0
PEER_TIMEOUT_S = 10.0


def train(folder, stages, **more):
    """`gnnpar train` of a run that would never end, in its own session."""
    keys = {
        "dataset": "karate",
        "system": "gnnpipe",
        "parallel.stages": stages,
        "batch.num_chunks": 4,
        "model.num_layers": 6,
        "model.hidden": 8,
        "train.num_epochs": 10_000_000,
        "trace.tensorboard": "false",
        "run.dir": folder / "run",
    } | more
    environment = os.environ | {"GNNPAR_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "gnnpar", "train", *(f"{key}={value}" for key, value in keys.items())],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process, ready):
    """What `ready()` returns once it is true; fails where the run ends before."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        value = ready()
        if value:
            return value
        if process.poll() is not None:
            pytest.fail(f"the run ended by itself\n{process.stdout.read()}")
        time.sleep(0.02)
    pytest.fail(f"not ready within {START_S:g} s")


def descendants(pid):
    """Process ids below `pid`, zombies left out."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        todo += parents.get(todo[0], [])
        found += parents.get(todo.pop(0), [])
    return found


def ranks(pid):
    """Rank → process id of the workers below `pid`."""
    found = {}
    for child in descendants(pid):
        try:
            pairs = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        variables = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        if b"RANK" in variables and b"WORLD_SIZE" in variables:
            found.setdefault(int(variables[b"RANK"]), child)
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lose(process, rank, number):
    """Send signal `number` to a rank: the screen, and which processes are left when the run has ended."""
    family = descendants(process.pid)
    os.kill(ranks(process.pid)[rank], number)
    patience = END_S if number == signal.SIGKILL else END_S + PEER_TIMEOUT_S
    screen, _ = process.communicate(timeout=patience)
    return screen, [pid for pid in family if alive(pid)]


def check_end(process, screen, left, text):
    assert left == []
    assert process.returncode not in (0, 2), screen
    assert text in "\n".join(screen.strip().splitlines()[-6:]), screen


@pytest.fixture
def run(tmp_path):
    """`run(stages, **keys)` starts a run; whatever is left of it is killed at the end."""
    started = []

    def start(stages, **keys):
        started.append(train(tmp_path, stages, **keys))
        return started[-1]

    yield start
    for process in started:
        for pid in [process.pid, *descendants(process.pid)]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize(("stages", "rank"), [(2, 0), (3, 1)])
def test_a_rank_killed_in_training_ends_the_run(run, tmp_path, stages, rank):
    process = run(stages)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(process, lambda: metrics.exists() and metrics.stat().st_size > 0)
    screen, left = lose(process, rank, signal.SIGKILL)
    check_end(process, screen, left, f"error: rank {rank} was killed by SIGKILL")


def test_a_rank_killed_before_it_joined_ends_the_run(run):
    process = run(2)
    wait_for(process, lambda: len(ranks(process.pid)) == 2)
    screen, left = lose(process, 1, signal.SIGKILL)
    check_end(process, screen, left, "error: rank 1 was killed by SIGKILL")


def test_a_rank_that_hangs_is_named_by_its_peer(run, tmp_path):
    process = run(2, **{"launch.timeout_s": PEER_TIMEOUT_S, "parallel.layers_per_stage": "[3,3]"})
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(process, lambda: metrics.exists() and metrics.stat().st_size > 0)
    screen, left = lose(process, 1, signal.SIGSTOP)
    check_end(process, screen, left, "rank 0: waiting for")
    assert "with rank 1" in screen
