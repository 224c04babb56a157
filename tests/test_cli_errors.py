"""A user's mistakes on the command line: exit code 2, one screen with cause and cure, nothing half-written"""

import contextlib
import logging
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnpar.cli.main import main
from gnnpar.data.store import open_store

N = 30
LINES = 25
"""One screen."""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder to run in, a data home of its own, and the log as it was."""
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    log = logging.getLogger("gnnpar")
    before = log.handlers, log.level, log.propagate
    yield tmp_path
    log.handlers, log.propagate = before[0], before[2]
    log.setLevel(before[1])


@pytest.fixture
def fails(capsys, place):
    """Run a command that must fail in the right way; what it printed."""

    def run(*arguments):
        code = main(list(arguments))
        printed = capsys.readouterr()
        text = printed.err
        assert code == 2, text
        assert printed.out == ""
        assert len(text.splitlines()) <= LINES and "Traceback" not in text
        assert "error: " in text
        assert not (place / "results").exists() and not list(place.rglob("config.yaml"))
        for folder in place.glob("home/stores/*/"):
            open_store(folder, verify=True)  # whatever was converted is complete
        return text[text.index("error: ") :]

    return run


def arrays(**changes):
    rng = np.random.default_rng(0)
    vertex = np.arange(N)
    return {
        "edge_index": rng.integers(0, N, (2, 100)),
        "x": rng.normal(size=(N, 5)).astype(np.float32),
        "y": vertex % 3,
        "num_nodes": N,
        "num_classes": 3,
        "train_mask": vertex < 10,
        "val_mask": (vertex >= 10) & (vertex < 20),
        "test_mask": vertex >= 20,
        **changes,
    }


def write(**changes):
    np.savez("graph.npz", **arrays(**changes))
    return ["train", "dataset=npz", "dataset.path=graph.npz", "model.num_layers=2", "batch.num_chunks=2"]


def changed(name, index, value):
    array = arrays()[name].copy()
    array[index] = value
    return {name: array}


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("model.num_layer=3", "model.num_layer: there is no such key; did you mean model.num_layers?"),
        ("tain.lr=1", "tain.lr: there is no such key; did you mean train.lr?"),
        ("sed=1", "sed: there is no such key; did you mean seed?"),
        ("model=gcni", "model: there is no model 'gcni'; choose one of"),
        ("system=gnnpip", "did you mean gnnpipe?"),
        ("history.mode=snapshoot", "did you mean snapshot?"),
        (
            "train.num_epochs",
            "train.num_epochs: has no value; overrides are written key=value, as in",
        ),
        (
            "--epochs=5",
            "--epochs=5: there are no options, overrides are written key=value; write train.num_e",
        ),
        ("--zzz", "--zzz: there are no options, overrides are written key=value"),
        ("format=xml", "there is no format 'xml'; choose table, json"),
        ("model.hidden=abc", "model.hidden: must be an integer, got 'abc'"),
        ("model.num_layers=2.5", "model.num_layers: must be an integer, got 2.5"),
        ("batch.shuffle=maybe", "batch.shuffle: must be true or false, got 'maybe'"),
        ("train.lr=-1", "train.lr: must be positive, got -1"),
        ("train.lr=nan", "train.lr: must be a finite number, got nan"),
        ("batch.num_chunks=0", "batch.num_chunks: must be at least 1, got 0"),
        ("model.dropout=1.0", "model.dropout: must be at least 0 and below 1, got 1.0"),
        ("seed=-1", "seed: must be at least 0 and at most 9.22337e+18, got -1"),
        ("parallel.layers_per_stage=3", "parallel.layers_per_stage: must be a list, such as [1, 2], got 3"),
        ("history.gamma=-0.5", "history.gamma: must be at least 0, got -0.5"),
        ("device=gpu", "device: must be cpu or cuda, got 'gpu'"),
    ],
)
def test_a_wrong_key_or_value(fails, key, wanted):
    assert wanted in fails("train", key)


def test_all_wrong_keys_and_values_at_once(fails):
    text = fails("train", "model.num_layer=3", "train.lr=-1", "model=gcni", "model.hidden=abc", "seed=x")
    assert "5 faults" in text
    for name in ("model.num_layer", "train.lr", "gcni", "model.hidden", "seed"):
        assert text.count(f"- {name}") == 1 or name == "gcni"


def test_options_with_a_value_are_one_mistake(fails):
    text = fails("train", "--epochs", "5", "--lr", "0.1", "sed=3")
    assert "3 faults" in text
    assert "- --epochs 5: " in text and "write train.num_epochs=5" in text and "write train.lr=0.1" in text


def test_a_command_that_does_not_exist(fails):
    assert "there is no command 'trian'" in fails("trian")
    assert "did you mean train" in fails("trian")


def test_more_stages_than_layers(fails):
    text = fails("train", "model.num_layers=2", "parallel.stages=4")
    assert "parallel.stages: 4 stages" in text and "use parallel.stages=2 or fewer" in text


@pytest.mark.parametrize("split", ["[1,1]", "[1,2,3]"])
def test_a_split_that_does_not_fit(fails, split):
    key = f"parallel.layers_per_stage={split}"
    text = fails("train", "model.num_layers=6", "parallel.stages=2", key)
    assert "parallel.layers_per_stage" in text


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("schedule.name=one_f_one", "schedule.name: there is no 'one_f_one'; choose one of"),
        (
            "schedule.name=chimera batch.num_chunks=5 batch.kind=clusters",
            "batch.num_chunks: must be even, got 5",
        ),
        (
            "schedule.name=chimera batch.kind=clusters parallel.stages=3",
            "parallel.stages: must be even, got 3; use 4",
        ),
        (
            "schedule.name=chimera batch.num_chunks=4",
            "keep chimera and drop gradients between chunks (history.gamma=0)",
        ),
        ("batch.kind=clusters parallel.ways=[2,1,1]", "parallel.ways: 3 numbers for parallel.stages=2"),
        (
            "schedule.name=chimera history.gamma=0 batch.num_chunks=4 parallel.ways=2",
            "ways do not exchange histories with another copy",
        ),
        ("schedule.name=one_f_one_b batch.num_chunks=4", "use schedule.name=gpipe, which runs backwards"),
        ("schedule.name=graphpipe batch.num_chunks=4", "use schedule.name=gpipe, which runs backwards"),
        ("schedule.name=gpipe schedule.waves=2", "schedule.waves: not an option of gpipe"),
        ("schedule.name=hanayo schedule.waves=0", "schedule.waves: must be at least 1, got 0"),
    ],
)
def test_a_schedule_that_cannot_run(fails, keys, wanted):
    assert wanted in fails(*write(), "model.num_layers=8", "parallel.stages=2", *keys.split())


def test_more_chunks_than_vertices(fails):
    text = fails(*write(), f"batch.num_chunks={N + 1}")
    assert f"batch.num_chunks: {N + 1} chunks" in text and f"only {N} vertices; use {N} or fewer" in text


def test_no_gpu_and_other_faults_of_the_run_at_once(fails, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "use device=cpu" in fails(*write(), "device=cuda")
    text = fails(*write(), "device=cuda", "batch.num_chunks=99", "train.metric=rocauc")
    assert "3 faults" in text and "use accuracy" in text


SOUND = {
    "an edge out of range": (changed("edge_index", (0, 3), 99), "edge_index: 1 ids out of range 0..29"),
    "a negative edge": (changed("edge_index", (1, 0), -2), "edge_index: 1 ids out of range 0..29"),
    "NaN features": (
        changed("x", (4, 1), np.nan),
        "features: 1 values are NaN or infinite, the first in rows [4]",
    ),
    "infinite features": (changed("x", (4, 1), np.inf), "features: 1 values are NaN or infinite"),
    "a label too large": (changed("y", 7, 3), "labels: 1 outside 0..2"),
    "a negative label": (changed("y", 7, -5), "labels: 1 outside 0..2"),
    "overlapping masks": (
        changed("val_mask", slice(0, 3), True),
        "train_mask and val_mask overlap in 3",
    ),
    "an empty train mask": ({"train_mask": np.zeros(N, bool)}, "train_mask: no vertex is selected"),
    "a mask too short": ({"test_mask": np.zeros(N - 1, bool)}, "test_mask: "),
    "too few labels": ({"y": np.zeros(N - 2, int)}, "labels: 28 rows for 30 vertices"),
    "too few features": ({"x": np.zeros((N - 1, 3), np.float32)}, "features: 29 rows for 30 vertices"),
}


@pytest.mark.parametrize("fault", SOUND)
def test_unsound_data(fails, fault):
    changes, wanted = SOUND[fault]
    text = fails(*write(**changes))
    assert wanted in text and "graph" in text


def test_all_faults_of_a_file_at_once(fails):
    changes = [changed("edge_index", (0, 3), 99), changed("x", (4, 1), np.nan), changed("y", 7, 9)]
    changes += [changed("val_mask", slice(0, 3), True), {"test_mask": np.zeros(N, bool)}]
    text = fails(*write(**{name: value for change in changes for name, value in change.items()}))
    assert "4 faults" in text
    for start in ("edge_index:", "features:", "labels:", "train_mask and val_mask overlap"):
        assert f"- {start}" in text


@pytest.mark.parametrize("keep", [0, 10, 500, -20])
def test_a_truncated_file(fails, keep):
    command = write()
    content = Path("graph.npz").read_bytes()
    Path("graph.npz").write_bytes(content[:keep])
    text = fails(*command)
    assert "graph.npz: truncated or corrupt" in text and "fetch or copy it again" in text


@pytest.mark.parametrize("where", [0.0, 0.2, 0.5, 0.9])
def test_a_corrupt_file(fails, where):
    command = write()
    content = bytearray(Path("graph.npz").read_bytes())
    at = int(where * len(content))
    content[at : at + 60] = bytes(b ^ 0xFF for b in content[at : at + 60])
    Path("graph.npz").write_bytes(content)
    assert "graph.npz" in fails(*command)


def test_a_file_that_is_something_else(fails):
    command = write()
    Path("graph.npz").write_text("a, b\n1, 2\n")
    assert "graph.npz: is not an .npz archive" in fails(*command)
    np.savez("graph.npz", **{name: array for name, array in arrays().items() if name != "y"})
    assert "has no array 'y'; see" in fails(*command)
    np.savez("graph.npz", something=np.ones(3))
    assert "no known layout" in fails(*command)


def test_a_file_of_python_objects(fails):
    command = write()
    np.savez("graph.npz", **arrays(x=np.array([{"a": 1}] * N, dtype=object)))
    assert "never read" in fails(*command)


def test_a_dataset_that_is_not_on_disk(fails):
    text = fails("train", "dataset=npz", "dataset.path=absent.npz")
    assert "not on disk: nothing to read at absent.npz" in text and "dataset.path" in text
    assert text.count("dataset.path") == 1
    Path("empty").mkdir()
    text = fails("train", "dataset=npz", "dataset.path=empty")
    assert text.count("dataset.path") == 1 and "empty is a folder without a file" in text
    assert "dataset.path" in fails("train", "dataset=npz")
    assert "nothing to fetch; give it as dataset.path" in fails("data", "fetch", "npz")


@pytest.mark.parametrize(
    ("name", "cure"), [("cora", "set dataset.path"), ("ogbn-arxiv", "run `gnnpar data fetch ogbn-arxiv`")]
)
def test_a_known_dataset_that_is_not_on_disk_says_how_to_get_it(fails, name, cure):
    text = fails("train", f"dataset={name}")
    assert f"dataset {name}: not on disk" in text and cure in text


def test_a_dataset_that_is_not_on_disk_without_a_network(fails, monkeypatch):
    def unreachable(*_, **__):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    text = fails("data", "fetch", "ogbn-arxiv", "--yes")
    assert "not on disk, and no network" in text and "set dataset.path" in text


def test_a_fetched_dataset_is_found_without_a_path(capsys, place):
    folder = place / "home" / "raw" / "cora"
    folder.mkdir(parents=True)
    write(x=np.ones((N, 5), np.float32))
    os.replace("graph.npz", folder / "cora.npz")
    code = main(["partition", "dataset=cora", "batch.num_chunks=2", "format=json"])
    assert code == 0, capsys.readouterr().err


def test_a_partition_of_another_graph(fails, capsys):
    write()
    command = ["partition", "dataset=npz", "dataset.path=graph.npz", "batch.num_chunks=3", "out=parts.npz"]
    assert main(command) == 0, capsys.readouterr().err
    capsys.readouterr()
    keys = "partition.path=parts.npz", "batch.num_chunks=3", "train.metric=rocauc"
    text = fails(*write(**changed("edge_index", slice(None), 0)), *keys)
    assert "partition: made for graph" in text and "partition this graph again" in text
    assert "train.metric: rocauc needs two classes" in text  # with all other faults


def test_a_partition_of_another_size_or_none_at_all(fails, capsys):
    command = ["partition", "dataset=npz", "dataset.path=graph.npz", "batch.num_chunks=3", "out=parts.npz"]
    write()
    assert main(command) == 0, capsys.readouterr().err
    capsys.readouterr()
    text = fails(*write(), "partition.path=parts.npz", "batch.num_chunks=4")
    assert "parts.npz has 3 parts" in text and "use batch.num_chunks=3" in text
    keys = "partition.path=parts.npz", "batch.num_chunks=2", "parallel.ways=2", "parallel.stages=1"
    for text in (fails(*write(), *keys), fails("partition", *write()[1:], *keys)):
        assert (
            "has 3 parts, batch.num_chunks is 2, each in 2 parts for parallel.ways; cut the graph into 4"
            in text
        )
    text = fails(*write(), "partition.path=nowhere.npz", "batch.num_chunks=3")
    assert "nowhere.npz: no such file" in text and "gnnpar partition" in text


def test_a_run_directory_that_is_in_use(fails, place):
    (place / "out").mkdir()
    (place / "out" / "thesis.npz").write_bytes(b"work of years")
    text = fails(*write(), "run.dir=out", "run.overwrite=true")
    assert "run.dir" in text and "choose another folder" in text
    assert (place / "out" / "thesis.npz").read_bytes() == b"work of years"


@pytest.mark.parametrize("folder", ["/proc/x", "graph.npz/run"])
def test_a_run_directory_that_cannot_be_made_is_told_before_data_is_read(fails, folder, place):
    text = fails(*write(), f"run.dir={folder}")
    assert "run.dir: cannot write to" in text and "choose another folder" in text
    assert not (place / "home").exists()


def test_the_command_line_itself_exits_with_2_and_one_screen(place):
    root = str(Path(sys.modules["gnnpar"].__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "gnnpar", *write(**changed("x", (0, 0), np.nan)), "seed=3"],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "features: 1 values are NaN or infinite" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= LINES
    with contextlib.suppress(FileNotFoundError):
        assert not list((place / "results").iterdir())
