"""The override grammar of sweeps: what it stands for, and every fault before anything starts."""

import math

import pytest

from gnnpar.config import compose, config_hash
from gnnpar.errors import InputError
from gnnpar.study import grid as module
from gnnpar.study.grid import choices, expand, read_grid


def jobs(*arguments):
    return expand(read_grid(arguments))


def faults(*arguments):
    with pytest.raises(InputError) as caught:
        jobs(*arguments)
    return caught.value.faults


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("range(3)", ["0", "1", "2"]),
        ("range(1,8,3)", ["1", "4", "7"]),
        ("range(3,0,-1)", ["3", "2", "1"]),
        ("range(0,1,0.25)", ["0.0", "0.25", "0.5", "0.75"]),
        ("16,32", ["16", "32"]),
        ("choice(a,b)", ["a", "b"]),
        ("null,0.5", ["null", "0.5"]),
        ("[15,10]", ["[15,10]"]),
        ("[15,10],[5,5]", ["[15,10]", "[5,5]"]),
        ("'a,b'", ["'a,b'"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("/some where/x(y", ["/some where/x(y"]),
        ("", [""]),
    ],
)
def test_choices(text, expected):
    assert list(choices(text)) == expected


def test_every_combination_once_the_last_key_fastest():
    found = jobs("system=gnnpipe,full_batch", "model.num_layers=4,8", "seed=range(2)", "dataset=karate")
    assert [job.label for job in found] == [
        f"system={system} model.num_layers={layers} seed={seed}"
        for system in ("gnnpipe", "full_batch")
        for layers in (4, 8)
        for seed in (0, 1)
    ]
    assert found[3].config == compose(["system=gnnpipe", "model.num_layers=8", "seed=1", "dataset=karate"])
    assert all(job.hash == config_hash(job.config) for job in found)
    assert len({job.hash for job in found}) == 8


def test_equal_jobs_run_once():
    assert len(jobs("seed=1,1,2,1")) == 2
    assert [job.config.parallel.ways for job in jobs("parallel.ways=[1,2],[2,1]")] == [(1, 2), (2, 1)]


def test_options_are_taken_out_and_the_last_value_wins():
    grid = read_grid(["seed=1,2", "sweep.jobs=3", "sweep.dir=a,b", "seed=5", "sweep.memory_gb=1.5"])
    assert (grid.options.jobs, grid.options.dir, grid.options.memory_gb) == (3, "a,b", 1.5)
    assert grid.axes == {"seed": ("5",)}


def test_all_faults_of_all_jobs_at_once():
    found = faults(
        *("sweep.jobs=0", "sweep.corse=1", "run.dir=x", "train.lrr=1", "seed=-1,0"),
        *("model.num_layers=4,8", "parallel.stages=2,8", "train.lr=interval(0,1)", "a", "--fast"),
    )
    text = "\n".join(found)
    for part in (
        "sweep.jobs: must be at least 1, got 0",
        "sweep.corse: there is no such key; did you mean sweep.cores?",
        "run.dir: the sweep gives every job a directory",
        "train.lrr: there is no such key; did you mean train.lr?",
        "seed: must be at least 0",
        "(4 of 8 jobs, as seed=-1 model.num_layers=4 parallel.stages=2)",
        "--fast: there are no options",
        "train.lr: interval(0,1) cannot be listed",
        "a: overrides are written key=value",
        "parallel.stages: 8 stages need at least as many layers",
    ):
        assert part in text
    assert len(found) == 9


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("seed=range(3,1)", "seed: range(3,1) is empty"),
        ("seed=range(0,3,0)", "seed: range(0,3,0) has no end"),
        ("seed=range(1000000000000)", "at most 1000 jobs"),
        ("seed=range(2),range(3)", "seed: range(2),range(3) cannot be listed"),
        ("system=glob(*)", "system: there is no system 'glob(*)'"),
        ("system=gnnpipe,gnnpip", "system: there is no system 'gnnpip'"),
    ],
)
def test_choices_that_cannot_be(argument, message):
    (fault,) = faults(argument)
    assert message in fault


def test_too_many_jobs_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(module, "compose", lambda overrides, **_: compose([]))
    (fault,) = faults("seed=range(900)", "dataset.split=range(900)")
    assert fault.startswith("900 (seed) × 900 (dataset.split) = 810000 jobs")


def test_a_file_says_the_same_and_the_command_line_wins(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "sweep.jobs: 2\nseed: range(2)\nsystem: [gnnpipe, full_batch]\n"
        "train.conv_weight_decay: [null, 0.5]\nparallel.ways: [[1, 2], [2, 1]]\nmemory.recompute: true\n"
    )
    grid = read_grid([f"sweep={file}", "system=gnnpipe", "sweep.jobs=1"])
    assert grid.options.jobs == 1
    assert grid.axes == {
        "seed": ("0", "1"),
        "system": ("gnnpipe",),
        "train.conv_weight_decay": ("null", "0.5"),
        "parallel.ways": ("[1,2]", "[2,1]"),
        "memory.recompute": ("true",),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("seed: [", "is not YAML"),
        ("- seed", "must be a mapping"),
        ("model: {hidden: 3}", "model: write KEY: VALUE"),
    ],
)
def test_files_that_are_no_sweeps(text, message, tmp_path):
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text)
    assert any(message in fault for fault in faults(f"sweep={tmp_path}/mine.yaml"))


@pytest.mark.parametrize("name", ["seeds", "depth", "speedup"])
def test_shipped_sweeps(name):
    grid = read_grid([f"sweep={name}"])
    assert math.prod(map(len, grid.axes.values())) >= 4 and not grid.faults
    for end in (0, -1):
        compose([f"{key}={values[end]}" for key, values in grid.axes.items()])
    assert "did you mean depth?" in faults("sweep=dept")[0]
