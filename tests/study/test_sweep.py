"""Sweeps survive: interruption, death of a job, and a budget that is too small."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from study.made import StandIn, make_run

from gnnpar.cli import sweep as cli
from gnnpar.errors import InputError, RunError
from gnnpar.study import board
from gnnpar.study import sweep as module
from gnnpar.study.budget import Budget
from gnnpar.study.folder import open_folder, sweep_dir
from gnnpar.study.grid import expand, read_grid
from gnnpar.study.options import SweepConfig
from gnnpar.study.runs import read_runs
from gnnpar.study.sweep import Outcome, run_sweep, train_command

DEADLINE_S = 100


class Silent:
    def __init__(self):
        self.said = []

    def ended(self, outcome):
        self.said.append(outcome)

    def update(self, outcomes):
        pass


@pytest.fixture(scope="module")
def jobs():
    """24 jobs of one process and one thread."""
    return expand(read_grid(["seed=range(24)", "system=full_batch", "launch.threads=1"]))


@pytest.fixture
def stand_in(tmp_path):
    return StandIn(tmp_path / "stand-in")


def sweep(path, todo, command, **options):
    with open_folder(path) as folder:
        return run_sweep(todo, folder, Budget(SweepConfig(**options)), Silent(), command=command)


def states(outcomes):
    found = {}
    for outcome in outcomes:
        found[outcome.state] = found.get(outcome.state, 0) + 1
    return found


def alive(pid):
    """Whether a process is there; one that has ended and waits for its parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def signal_when(condition, number):
    """Send this process a signal as soon as the condition holds."""

    over = threading.Event()

    def watch():
        wait_until(lambda: over.is_set() or condition())
        if not over.is_set():
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def interruptible():
    """SIGINT raises, also where whoever started the tests in the background had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_twice_it_finishes_with_every_row_once(tmp_path, jobs, stand_in):
    path, before = tmp_path / "sweep", {}

    def finished():
        return {summary: summary.stat().st_mtime_ns for summary in path.glob("*/summary.json")}

    for number, enough, error in ((signal.SIGINT, 5, KeyboardInterrupt), (signal.SIGTERM, 12, SystemExit)):
        # Later jobs wait for the signal: on a busy machine the sweep would else be over before it comes.
        stand_in.scripts = dict.fromkeys(range(enough + 3, 24), f"sleep {DEADLINE_S}")
        with (
            pytest.raises(error),
            signal_when(lambda enough=enough: len(finished()) >= enough, number),
        ):
            sweep(path, jobs, stand_in, jobs=3, cores=3)
        assert not any(map(alive, stand_in.pids()))
        now = finished()
        assert enough <= len(now) < 24 and before.items() <= now.items()  # finished jobs are left alone
        before = now
        stand_in.scripts = {}
        record = json.loads((path / "sweep.json").read_text())
        kept = [one for one in record["jobs"] if one["state"] in ("finished", "found")]
        # A job may finish just as it is stopped; the next sweep finds it then.
        assert len(kept) <= len(now) and "running" not in {one["state"] for one in record["jobs"]}
    outcomes = sweep(path, jobs, stand_in, jobs=3, cores=3)
    assert states(outcomes) == {"found": len(before), "finished": 24 - len(before)}
    assert before.items() <= finished().items()
    found = read_runs([path])
    assert sorted(run.config.seed for run in found.runs) == list(range(24)) and not found.notes
    assert len(list(path.glob("*/config.yaml"))) == 24


def test_a_job_that_dies_is_recorded_and_the_others_go_on(tmp_path, jobs, stand_in):
    stand_in.scripts = {
        1: "echo first; seq 100; echo last words >&2; exit 7",
        2: "kill -9 $$",
    }
    outcomes = sweep(tmp_path / "sweep", jobs[:4], stand_in, jobs=2, cores=2)
    assert [outcome.state for outcome in outcomes] == ["finished", "failed", "failed", "finished"]
    assert (outcomes[1].exit_code, outcomes[2].exit_code) == (7, -9)
    assert outcomes[1].said[-1] == "last words" and len(outcomes[1].said) == 20
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["jobs"]
    assert record[1]["said"] == outcomes[1].said and record[1]["overrides"][0] == "seed=1"
    assert len(read_runs([tmp_path / "sweep"]).notes) == 2
    stand_in.scripts = {}
    again = sweep(tmp_path / "sweep", jobs[:4], stand_in, jobs=2, cores=2)
    assert [outcome.state for outcome in again] == ["found", "finished", "finished", "found"]
    assert len(read_runs([tmp_path / "sweep"]).runs) == 4


def test_a_half_finished_run_is_run_again_in_its_place(tmp_path, jobs):
    place = make_run(tmp_path / "sweep" / "some name", *jobs[0].overrides, finished=False)
    left = place.with_name(f".full_batch-{jobs[1].hash}.123")
    done = make_run(tmp_path / "sweep" / "other", *jobs[2].overrides)
    with open_folder(tmp_path / "sweep") as folder:
        assert folder.run_dir(jobs[0]) == place and not folder.finished(jobs[0])
        assert folder.run_dir(jobs[2]) == done and folder.finished(jobs[2])
        assert folder.run_dir(jobs[1]).name == f"digits-full_batch-{jobs[1].hash}"
        left = folder.path / f".{folder.run_dir(jobs[1]).name}.123"
        left.mkdir()
        folder.clear(jobs[1])
        assert not left.exists()
    command = train_command(jobs[0], place, True)
    assert command[1:4] == ["-m", "gnnpar", "train"]
    assert {*jobs[0].overrides, f"run.dir={place}", "run.overwrite=true"} <= {*command}
    assert "run.overwrite=true" not in train_command(jobs[0], place, False)


def test_a_killed_sweep_leaves_no_orphan(tmp_path):
    script = (
        "from study.test_sweep import *\n"
        "jobs = expand(read_grid(['seed=0,1', 'system=full_batch', 'launch.threads=1']))\n"
        f"stand_in = StandIn(Path({str(tmp_path)!r}) / 'stand-in', seconds=600)\n"
        f"stand_in.scripts = dict.fromkeys(range(2), 'exec sleep 600')\n"
        f"sweep(Path({str(tmp_path)!r}) / 'sweep', jobs, stand_in, jobs=2, cores=2)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path])}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        pids = tmp_path / "stand-in" / "pids"
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        with pytest.raises(InputError, match=rf"in use by process {process.pid} "):
            sweep(tmp_path / "sweep", [], None)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))


def test_jobs_that_hold_too_much_memory_together_run_one_after_the_other(tmp_path, jobs, stand_in):
    hold = f"{sys.executable} -c 'import time; held = b\"x\" * (60 << 20); time.sleep(2)'"
    stand_in.scripts = dict.fromkeys(range(3), hold)
    stand_in.scripts[2] = hold.replace("60", "200")
    budget = Budget(SweepConfig(jobs=2, cores=2, memory_gb=0.11))
    budget.peaks = {"of another job": 1}  # so that both are taken to fit
    shown = Silent()
    with open_folder(tmp_path / "sweep") as folder:
        outcomes = run_sweep(jobs[:3], folder, budget, shown, command=stand_in)
    assert [outcome.state for outcome in outcomes] == ["finished", "finished", "too large"]
    assert len(stand_in.pids()) >= 4 and len(shown.said) == 3  # one was ended, and came again
    assert budget.alone and not budget.fits(jobs[1], [jobs[3]])


def test_two_sweeps_in_one_folder_refuse_each_other(tmp_path):
    with open_folder(tmp_path / "sweep"), pytest.raises(InputError, match="is in use by process"):
        open_folder(tmp_path / "sweep").__enter__()
    with open_folder(tmp_path / "sweep"):
        pass


def test_folders_that_cannot_be_used(tmp_path):
    run = make_run(tmp_path / "run", "system=full_batch")
    for path, message in ((run, "is the directory of a run"), (run / "env.json" / "x", "cannot write to")):
        with pytest.raises(InputError, match=message):
            open_folder(path).__enter__()


def test_the_same_jobs_find_the_same_folder(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sweep_dir(None, jobs) == sweep_dir(None, jobs[::-1]) != sweep_dir(None, jobs[1:])
    assert sweep_dir(None, jobs).parent == tmp_path / "results" / "sweeps"
    assert sweep_dir("x", jobs) == tmp_path / "x"


def test_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one, two, fixed = expand(read_grid(["parallel.stages=1,2", "launch.threads=null,3", "dataset=karate"]))[
        ::2
    ] + expand(read_grid(["parallel.stages=2", "launch.threads=3"]))
    plenty = Budget(SweepConfig(cores=8, jobs=2))
    assert [plenty.needs(job) for job in (one, two, fixed)] == [4, 4, 6]
    assert plenty.fits(one, [two]) and not plenty.fits(one, [fixed]) and not plenty.fits(one, [one, two])
    few = Budget(SweepConfig(cores=2))
    assert [few.needs(job) for job in (one, two, fixed)] == [1, 2, 6]
    assert few.fits(one, [one]) and not few.fits(one, [two]) and few.fits(fixed, [])
    (fault,) = few.faults([one, two, fixed, fixed])
    assert fault.startswith("sweep.cores: 2, but processes × threads of a job are 2 × 3")
    assert not Budget(SweepConfig()).faults([fixed])
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [few.needs(job) for job in (one, two, fixed)] == [2, 4, 6]


def test_memory_that_is_expected(jobs):
    budget = Budget(SweepConfig(cores=8, memory_gb=1))
    other = expand(read_grid(["system=full_batch", "launch.threads=1", "model.hidden=32"]))[0]
    assert budget.fits(jobs[0], []) and not budget.fits(jobs[0], [jobs[1]])  # nothing is known yet
    budget.ended(jobs[0], 2**28)
    assert budget.fits(jobs[1], [jobs[2], other]) and budget.memory_of(other) == 2**28
    budget.held[other.hash] = 2**29 + 1
    assert not budget.fits(jobs[1], [jobs[2], other])


@pytest.mark.slow
def test_a_real_sweep_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keys = ["dataset=karate", "system=full_batch", "model.num_layers=2", "model.hidden=8"]
    keys += ["train.num_epochs=2", "trace.tensorboard=false"]
    arguments = [*keys, "seed=range(2)", "sweep.cores=2", "sweep.dir=here"]
    half = make_run(tmp_path / "here" / "half", *keys, "seed=1", finished=False)
    assert cli.main([*arguments, "format=json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["runs"] == 2 and row["seeds"] == [0, 1] and row["run_dirs"][1] == str(half)
    assert len(list(tmp_path.glob("here/*/model.pt"))) == 2
    assert row["command"].startswith("gnnpar sweep dataset=karate system=full_batch")
    assert row["command"].endswith(" seed=0,1")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("here/*/summary.json")}
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert "karate, full_batch, gcnii" in printed.out and "2 of 2 jobs are finished already" in printed.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("here/*/summary.json")} == before


def test_the_live_table(tmp_path, jobs):
    run_dir = make_run(tmp_path / "run", *jobs[0].overrides, points=((1, 0.5), (7, 0.5)))
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 8, "tr')  # being written
    outcomes = [
        Outcome("seed=0", (), "a", str(run_dir), "running"),
        Outcome("seed=1", (), "b", str(run_dir), "finished"),
        Outcome("seed=2", (), "c", str(tmp_path), "failed", exit_code=3, said=["it broke", ""]),
        Outcome("seed=3", (), "d", str(tmp_path / "nothing"), "waiting"),
    ]
    console = Console(file=io.StringIO(), width=100)
    with Live(console=console, auto_refresh=False) as live:
        table = board._Table(4, live)
        table.ended(outcomes[1])
        table.ended(outcomes[2])
        table.update(outcomes)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["failed:", "seed=2;", "exit", "code", "3:", "it", "broke"] in lines
    assert ["4", "jobs:", "1", "running,", "1", "finished,", "1", "failed,", "1", "waiting"] in lines
    assert ["seed=0", "running", "7", "1.0000"] in lines
    assert ["seed=1", "finished", "validation", "90.00%,", "test", "80.00%"] in lines


def test_faults_stop_it_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with pytest.raises(InputError) as caught:
        cli.main(
            [
                "system=one_f_one_b,full_batch",
                "batch.kind=chunks",
                "batch.num_chunks=4",
                "launch.threads=4",
                "sweep.cores=3",
            ]
        )
    text = str(caught.value)
    assert "schedule.name: one_f_one_b" in text and "(1 of 2 jobs, as system=one_f_one_b)" in text
    assert "sweep.cores: 3, but" in text
    assert not list(tmp_path.iterdir())


def test_it_is_not_for_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="call it without torchrun"):
        cli.main(["seed=0"])


def test_failures_are_told_at_the_end(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stand_in = StandIn(tmp_path / "stand-in", scripts={1: "echo it broke; exit 3"})
    real = module.run_sweep
    monkeypatch.setattr(module, "run_sweep", lambda *given, **named: real(*given, **named, command=stand_in))
    with pytest.raises(RunError) as caught:
        cli.main(["seed=0,1", "system=full_batch", "sweep.jobs=1"])
    text = str(caught.value)
    assert text.startswith("sweep: 1 of 2 jobs did not finish")
    assert "  seed=1: failed, exit code 3\n    | it broke" in text
    printed = capsys.readouterr()
    assert "digits, full_batch, gcnii" in printed.out
    assert "[1/2] finished: seed=0" in printed.err and "exit code 3: it broke" in printed.err
