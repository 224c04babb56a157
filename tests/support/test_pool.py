"""The pool itself: values, failures, deadlines, and no process left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from support.pool import Pool, RanksFailed

from gnnpar.errors import InputError

FACTOR = 10


def reduce_ranks(context, offset):
    total = context.all_reduce(torch.tensor([context.rank + offset]), "sum")
    return context.rank, int(total) * FACTOR, torch.get_num_threads(), os.getpid()


def fail_on(context, rank):
    if context.rank == rank:
        raise InputError("probe", ["one", "two"])
    context.barrier("wait for a rank that failed")


def sleep_on(context, rank):
    if context.rank == rank:
        time.sleep(60)


def kill_on(context, rank):
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    context.barrier("wait for a rank that died")


def test_values_come_back_by_rank_from_warm_processes(pool):
    first = pool.run(reduce_ranks, 2, 5)
    assert [value[:3] for value in first] == [(0, 110, 1), (1, 110, 1)]
    again = pool.run(reduce_ranks, 3, 0)
    assert [value[:3] for value in again] == [(0, 30, 1), (1, 30, 1), (2, 30, 1)]
    assert {value[3] for value in first} <= {value[3] for value in again} <= set(pool.pids())
    assert pool.run(reduce_ranks, 1, 4)[0][:2] == (0, 40)


def test_an_exception_names_its_rank_and_keeps_the_pool_warm(pool):
    before = pool.run(reduce_ranks, 2, 0)
    with pytest.raises(RanksFailed, match="InputError: probe: 2 faults") as caught:
        pool.run(fail_on, 2, 1)
    assert next(iter(caught.value.texts)) == 1
    assert caught.value.errors[1].faults == ("one", "two")
    assert [value[3] for value in pool.run(reduce_ranks, 2, 0)] == [value[3] for value in before]


def test_an_overrun_shows_the_stack_and_replaces_the_processes(pool):
    with pytest.raises(RanksFailed, match="deadline of 1 s overrun") as caught:
        pool.run(sleep_on, 2, 1, timeout_s=1)
    assert list(caught.value.texts) == [1]
    assert "in sleep_on" in caught.value.texts[1]
    assert [value[:2] for value in pool.run(reduce_ranks, 2, 0)] == [(0, 10), (1, 10)]


def test_a_killed_rank_is_named_with_its_signal(pool):
    with pytest.raises(RanksFailed, match="SIGKILL") as caught:
        pool.run(kill_on, 2, 0)
    assert "SIGKILL" in caught.value.texts[0]
    assert "SIGKILL" not in caught.value.texts.get(1, "")


@pytest.mark.parametrize("end", ["close", "kill"])
def test_no_worker_outlives_the_pool(end):
    if end == "close":
        pool = Pool(size=1)
        pool.run(reduce_ranks, 1, 0)
        pids = pool.pids()
        pool.close()
    else:
        script = f"""
            import sys, time
            sys.path.insert(0, {str(Path(__file__).parents[1])!r})
            from support.pool import Pool
            pool = Pool(size=1)
            pool._start(1)
            print(*pool.pids(), flush=True)
            time.sleep(60)
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            parent.kill()
    assert len(pids) == 1
    for _ in range(100):
        if not any(running(pid) for pid in pids):
            return
        time.sleep(0.1)
    pytest.fail(f"workers {pids} are still running")


def running(pid):
    """True where the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
