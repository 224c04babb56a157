"""The launcher with real processes: whatever happens to a rank, the run ends, and the right rank is named."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnpar.config import LaunchConfig
from gnnpar.dist.launch import launch_workers, num_cores, worker_environment
from gnnpar.errors import InputError, RunError

HERE = Path(__file__).parent
DEADLINE_S = 60

PARENT = """
import sys
from pathlib import Path
from gnnpar.config import LaunchConfig
from gnnpar.dist.launch import launch_workers
launch_workers(Path(sys.argv[1]), 2, LaunchConfig(), module="launch_workers")
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture(autouse=True)
def deadline():
    """A test that hangs ends with an error."""

    def overrun(number, frame):
        raise TimeoutError(f"the test took more than {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, overrun)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def launch(folder, what, config=None):
    (folder / "what").write_text(what)
    launch_workers(folder, 2, config or LaunchConfig(), module="launch_workers")


def assert_all_gone(folder):
    pids = [int(file.read_text()) for file in folder.glob("pid*")]
    assert len(pids) >= 2
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid))


def is_alive(pid):
    """False, too, for a process that has ended and waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true):
    while not true():
        time.sleep(0.05)


def test_workers_get_their_place_and_logs(tmp_path, capfd):
    launch(tmp_path, "report", LaunchConfig(threads=1))
    for rank in range(2):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        assert (seen["RANK"], seen["LOCAL_RANK"], seen["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert (seen["OMP_NUM_THREADS"], seen["NUMBA_NUM_THREADS"]) == ("1", "1")
        log = (tmp_path / "logs" / f"rank{rank}.log").read_text()
        assert f"quiet {rank}" in log
        assert f"loud {rank}" in log
    assert "printed by 1" in log
    out, err = capfd.readouterr()
    assert out == "printed by 0\n"
    assert err.splitlines() == ["quiet 0", "loud 0", "rank 1: loud 1"] or sorted(err.splitlines()) == [
        "loud 0",
        "quiet 0",
        "rank 1: loud 1",
    ]


@pytest.mark.parametrize(
    ("what", "first"),
    [
        ("kill_second", "rank 1 was killed by SIGKILL"),
        ("raise_in_second", "Traceback (most recent call last):"),
    ],
)
def test_the_rank_that_failed_first_is_named_first(tmp_path, what, first):
    with pytest.raises(RunError) as caught:
        launch(tmp_path, what)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(first)
    assert lines[-2:] == ["rank 0 failed after that", f"logs of all ranks: {tmp_path / 'logs'}"]
    if what == "raise_in_second":
        assert lines[-3] == "rank 1: ValueError: the cause"
        assert any("in raise_in_second" in line for line in lines)
    assert_all_gone(tmp_path)


def test_a_rank_that_ignores_sigterm_and_its_children_are_ended_too(tmp_path):
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL"):
        launch(tmp_path, "kill_second_while_first_is_deaf")
    assert (tmp_path / "pid_child").exists()
    assert_all_gone(tmp_path)


def test_a_mistake_found_by_a_worker_is_an_input_error(tmp_path):
    with pytest.raises(InputError) as caught:
        launch(tmp_path, "refuse")
    assert caught.value.title == "graph"
    assert caught.value.faults == ("edge 3 is wrong", "label 7 is wrong")
    assert_all_gone(tmp_path)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_worker_outlives_its_parent(tmp_path, number, code):
    (tmp_path / "what").write_text("sleep")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        asleep = [tmp_path / f"asleep{rank}" for rank in range(2)]
        wait_until(lambda: parent.poll() is not None or all(file.exists() for file in asleep))
        parent.send_signal(number)
        assert parent.wait() == code
    finally:
        with contextlib.suppress(ProcessLookupError):
            parent.kill()
        parent.wait()
    assert_all_gone(tmp_path)


def test_threads_are_cores_divided_by_ranks_unless_told(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    alone = worker_environment(0, 1, LaunchConfig(), 1)
    assert alone["OMP_NUM_THREADS"] == alone["NUMBA_NUM_THREADS"] == str(num_cores())
    assert worker_environment(0, 10**6, LaunchConfig(), 1)["OMP_NUM_THREADS"] == "1"
    assert worker_environment(0, 2, LaunchConfig(threads=3), 1)["OMP_NUM_THREADS"] == "3"
    assert int(alone["MALLOC_TRIM_THRESHOLD_"]) > 2**30


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    monkeypatch.setenv("RANK", "9")
    environment = worker_environment(1, 2, LaunchConfig(), 1234)
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "5"
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "7"
    assert (environment["RANK"], environment["MASTER_PORT"]) == ("1", "1234")
    assert worker_environment(1, 2, LaunchConfig(threads=2), 1)["OMP_NUM_THREADS"] == "2"


def test_idle_openmp_threads_sleep_unless_the_user_has_said_how_they_wait(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert worker_environment(0, 2, LaunchConfig(), 1)["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in worker_environment(0, 2, LaunchConfig(), 1)
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert worker_environment(0, 2, LaunchConfig(), 1)["GOMP_SPINCOUNT"] == "5"
