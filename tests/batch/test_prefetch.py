"""Batches made ahead: in order, bounded, errors with their cause, no thread left behind."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from support.graphs import tiny_graph
from support.sampling import same_batch

from gnnpar.batch import NeighbourSampler, Prefetch, SeedBatches, ShadowSampler
from gnnpar.errors import InputError, RunError


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("gnnpar-batch")]


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    for thread in own_threads():
        thread.join(10)
    assert not own_threads()


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("make", [lambda g: NeighbourSampler(g, [3, 2]), lambda g: ShadowSampler(g, 2, 2)])
def test_batches_are_those_made_one_by_one(make, num_threads):
    graph = tiny_graph()
    sampler, work = make(graph), SeedBatches(torch.arange(40), 2).epoch(0)
    with Prefetch(lambda i: sampler.sample(work[i][1], work[i][0]), 20, num_threads=num_threads) as batches:
        made = list(batches)
    assert len(made) == 20
    for batch, (key, seeds) in zip(made, work, strict=True):
        assert same_batch(batch, make(graph).sample(seeds, key))


def test_order_does_not_depend_on_who_is_done_first():
    later = [threading.Event() for _ in range(6)]

    def make(number):
        if number + 1 < 6:
            assert number % 2 or later[number + 1].wait(30)  # even numbers end after the next odd one
        later[number].set()
        return number

    with Prefetch(make, 6, depth=4, num_threads=2, timeout_s=30) as batches:
        assert list(batches) == list(range(6))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_batches_are_begun_than_the_depth_allows(depth):
    begun, taken = [], 0

    def make(number):
        assert number < taken + 1 + depth
        begun.append(number)
        return number

    with Prefetch(make, 30, depth=depth, num_threads=3, timeout_s=30) as batches:
        for taken, number in enumerate(batches):
            assert number == taken
    assert sorted(begun) == list(range(30))


def test_an_error_names_the_batch_and_has_its_cause():
    def make(number):
        if number == 2:
            raise ValueError("no such vertex")
        return number

    with Prefetch(make, 9, depth=4) as batches:
        assert [next(batches), next(batches)] == [0, 1]
        with pytest.raises(RunError, match="batch 2 could not be made: no such vertex") as error:
            next(batches)
        assert isinstance(error.value.__cause__, ValueError)
        with pytest.raises(StopIteration):
            next(batches)


def test_an_error_that_is_a_timeout_itself_is_no_missed_deadline():
    def make(number):
        raise TimeoutError("inner")

    with Prefetch(make, 1) as batches, pytest.raises(RunError, match="could not be made: inner"):
        next(batches)


def test_a_missed_deadline_names_the_batch():
    go_on = threading.Event()
    with Prefetch(lambda _: go_on.wait(30), 3, timeout_s=0.05) as batches:
        with pytest.raises(RunError, match=r"batch 0 was not there within 0\.05 s"):
            next(batches)
        go_on.set()


def test_leaving_early_drops_what_has_not_begun():
    begun = []
    with Prefetch(lambda i: begun.append(i), 100, depth=3) as batches:
        next(batches)
    for thread in own_threads():
        thread.join(10)
    assert len(begun) <= 4
    batches.close()  # again
    with pytest.raises(StopIteration):
        next(batches)


def test_stopping_has_a_deadline_too():
    begun, go_on = threading.Event(), threading.Event()

    def make(number):
        if number == 0:
            return True
        begun.set()
        return go_on.wait(30)

    batches = Prefetch(make, 3, depth=2, timeout_s=0.05)
    assert next(batches)
    begun.wait(30)
    try:
        with pytest.raises(RunError, match="still being made"):
            batches.close()
    finally:
        go_on.set()


def test_threads_are_gone_after_an_error_too():
    """They used to be forgotten once an error had been raised."""
    begun, go_on = threading.Event(), threading.Event()

    def make(number):
        if number == 0:
            begun.wait(30)
            raise ValueError("no")
        begun.set()
        go_on.wait(30)

    with Prefetch(make, 2, num_threads=2, timeout_s=30) as batches:
        with pytest.raises(RunError, match="could not be made"):
            next(batches)
        go_on.set()
    assert not own_threads()


def test_a_stuck_batch_keeps_neither_its_error_back_nor_the_interpreter():
    code = (
        "import threading\n"
        "from gnnpar.batch import Prefetch\n"
        "with Prefetch(lambda _: threading.Event().wait(600), 1, timeout_s=0.05) as batches:\n"
        "    next(batches)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=Path.cwd()
    )
    assert done.returncode == 1 and done.stderr.strip().endswith("batch 0 was not there within 0.05 s")


def test_no_batches_and_bad_input():
    with Prefetch(lambda _: None, 0) as batches:
        assert list(batches) == []
    with pytest.raises(InputError) as error:
        Prefetch(lambda _: None, 1, depth=0, num_threads=-1, timeout_s=0)
    assert [fault.split(":")[0] for fault in error.value.faults] == ["depth", "num_threads", "timeout_s"]
