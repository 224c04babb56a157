"""Which launcher a process stands under, and what rank 0 shares."""

import threading

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from gnnpar.config import LaunchConfig
from gnnpar.dist.failure import Failure, describe_failures, write_failure
from gnnpar.dist.launch import num_cores
from gnnpar.dist.launched import Membership, adopt_slurm, first_host, is_first_process, settle, under_launcher
from gnnpar.errors import InputError, RunError

SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}


def test_torchrun_and_srun_are_launchers_and_a_batch_script_is_not():
    assert under_launcher({"RANK": "0", "WORLD_SIZE": "2"})
    assert under_launcher(SRUN)
    assert not under_launcher({})
    assert not under_launcher({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert not under_launcher({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"})


def test_the_first_process_speaks():
    assert is_first_process({})
    assert is_first_process({"RANK": "0"})
    assert not is_first_process({"RANK": "1"})
    assert not is_first_process(SRUN)
    assert is_first_process({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"})


def test_srun_variables_become_torchrun_variables():
    environment = SRUN | {"SLURM_STEP_NODELIST": "n[07-09]", "SLURM_STEP_NUM_NODES": "3"}
    adopt_slurm(environment)
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["LOCAL_RANK"]) == ("3", "4", "1")
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("n07", "20077")


def test_variables_of_torchrun_win_over_srun():
    environment = SRUN | {"RANK": "1", "WORLD_SIZE": "2"}
    adopt_slurm(environment)
    assert "MASTER_ADDR" not in environment


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[07-09,12],m1", "n07"),
        ("gpu[3,5]-ib", "gpu3-ib"),
        ("a-b[1-2]", "a-b1"),
    ],
)
def test_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


def test_a_node_list_that_cannot_be_read_is_a_fault():
    with pytest.raises(InputError, match="MASTER_ADDR"):
        first_host("")


@pytest.mark.parametrize(
    ("config", "environment", "threads"),
    [
        ({"threads": 3}, {"OMP_NUM_THREADS": "2"}, 3),
        ({}, {"OMP_NUM_THREADS": "2"}, 2),
        ({}, {"OMP_NUM_THREADS": "1"}, 1),
        ({}, {"LOCAL_WORLD_SIZE": "100000"}, 1),
        ({}, {"SLURM_STEP_TASKS_PER_NODE": "100000(x2),1"}, 1),
        ({}, {"LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x"}, num_cores()),
    ],
)
def test_threads_under_another_launcher(config, environment, threads):
    before = torch.get_num_threads()
    try:
        assert settle(LaunchConfig(**config), environment) == threads
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def share(make):
    """`make` on rank 0, and what ranks 0 and 1 got: a value, or the error raised."""
    store = HashStore()
    got = [None, None]

    def rank(number):
        try:
            got[number] = Membership(number, 2, store).share(make, "config")
        except Exception as error:
            got[number] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return got


def test_every_rank_gets_what_rank_0_made():
    assert share(lambda: "results/é") == ["results/é", "results/é"]


def test_mistakes_and_failures_of_rank_0_reach_every_rank():
    def mistake():
        raise InputError("graph", ["a", "b"])

    def failure():
        raise OSError("disk full")

    for error in share(mistake):
        assert isinstance(error, InputError)
        assert (error.title, error.faults) == ("graph", ("a", "b"))
    first, second = share(failure)
    assert isinstance(first, OSError)
    assert isinstance(second, RunError)
    assert "rank 0: config: OSError disk full" in str(second)


def test_a_process_that_died_silently_comes_before_one_that_lost_its_peer(tmp_path):
    lost = Failure.of_exception(0, RunError("rank 0: connection closed by rank 1"))
    write_failure(lost, tmp_path / "0.json")
    failures = [Failure.of(0, 1, tmp_path / "0.json"), Failure.of(1, -11, tmp_path / "1.json")]
    text = str(describe_failures(failures, tmp_path))
    assert text.splitlines()[0].startswith("rank 1 was killed by SIGSEGV")
    assert "rank 0 failed after that" in text


def test_an_exception_comes_before_the_broken_connections_that_it_caused():
    lost = Failure.of_exception(0, RuntimeError("pair.cc: Connection closed by peer"))
    cause = Failure.of_exception(1, ValueError("the cause"))
    assert lost.when <= cause.when
    assert "rank 1: ValueError: the cause" in str(describe_failures([lost, cause], "logs"))


def test_the_earlier_exception_comes_first():
    late, early = (
        Failure(0, 5.0, "rank 0: late", trace="trace of 0"),
        Failure(1, 4.0, "rank 1: early", trace="trace of 1"),
    )
    text = str(describe_failures([late, early], "logs"))
    assert "trace of 1" in text
    assert "trace of 0" not in text


def test_a_worker_that_ended_well_or_left_half_a_file_is_no_failure_of_its_own(tmp_path):
    assert Failure.of(0, 0, tmp_path / "none.json") is None
    (tmp_path / "half.json").write_text('{"rank": 1, "wh')
    assert "exit code 3" in Failure.of(1, 3, tmp_path / "half.json").text
