"""The run directory appears complete or not at all, and no earlier results are lost."""

import json
import os
import re
from dataclasses import replace

import pytest

from gnnpar.config import DatasetConfig, compose, from_yaml, to_yaml
from gnnpar.errors import InputError
from gnnpar.train.rundir import MARKS, check_run_dir, create_run_dir, new_run_dir, run_name


def config_for(folder, *overrides):
    return compose([f"run.dir={folder}", *overrides])


def test_it_holds_what_is_needed_to_run_again(tmp_path):
    config = config_for(tmp_path / "deep" / "run")
    folder = create_run_dir(config, ["gnnpar", "train", "run.dir=a b"])
    assert folder == tmp_path / "deep" / "run"
    assert from_yaml((folder / "config.yaml").read_text()) == config
    assert (folder / "command.txt").read_text() == "gnnpar train 'run.dir=a b'\n"
    environment = json.loads((folder / "env.json").read_text())
    assert environment["packages"]["torch"].startswith("2.")
    assert environment["cores"] >= 1
    assert (folder / "logs").is_dir()
    assert [file.name for file in folder.parent.iterdir()] == ["run"]


def test_default_names_sort_by_time_and_tell_what_ran(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = compose()
    assert re.fullmatch(r"\d{8}-\d{6}-digits-gnnpipe-[0-9a-f]{8}", run_name(config))
    first, second = create_run_dir(config), create_run_dir(config)
    assert first != second
    assert first.parent == second.parent == tmp_path / "results" / "runs"


def test_a_file_lends_its_name():
    assert "-my_graph-full_batch-" in run_name(
        compose(["dataset=npz", "dataset.path=/x/my graph.npz", "system=full_batch"])
    )


def test_a_run_of_a_script_can_be_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["my script.py", "--fast"])
    folder = create_run_dir(config_for(tmp_path / "run"))
    assert (folder / "command.txt").read_text() == "python 'my script.py' --fast\n"


def test_a_graph_in_memory_has_a_name_and_no_recipe():
    config = replace(compose(), dataset=DatasetConfig(kind="memory", name="mine"))
    assert "symmetrize" not in to_yaml(config) and from_yaml(to_yaml(config)) == config


def test_an_earlier_run_is_kept_unless_told(tmp_path):
    config = config_for(tmp_path / "run")
    folder = create_run_dir(config)
    (folder / "summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"run\.overwrite=true"):
        create_run_dir(config)
    assert (folder / "summary.json").exists()
    create_run_dir(config_for(tmp_path / "run", "run.overwrite=true"))
    assert not (folder / "summary.json").exists()
    assert (folder / "config.yaml").exists()


def test_a_folder_that_is_no_run_is_never_replaced(tmp_path):
    (tmp_path / "config.yaml").write_text("precious")
    with pytest.raises(InputError, match="not a run's"):
        create_run_dir(config_for(tmp_path, "run.overwrite=true"))
    assert (tmp_path / "config.yaml").read_text() == "precious"


def test_an_empty_folder_may_be_used(tmp_path):
    assert create_run_dir(config_for(tmp_path)) == tmp_path
    assert (tmp_path / "env.json").exists()


def test_a_file_in_the_way_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        check_run_dir(config_for(tmp_path / "file" / "run"))


def test_a_folder_that_cannot_be_made_is_a_fault():
    with pytest.raises(InputError, match=r"run\.dir: cannot write to /proc \("):
        check_run_dir(config_for("/proc/x/run"))


def test_a_run_that_still_goes_is_never_replaced(tmp_path):
    config = config_for(tmp_path / "run", "run.overwrite=true")
    with new_run_dir(config) as folder:
        (folder / "metrics.jsonl").write_text("{}")
        with pytest.raises(InputError, match=rf"is in use by process {os.getpid()} on .*; wait for that run"):
            check_run_dir(config)
        with pytest.raises(InputError, match="is in use"):
            create_run_dir(config)
        assert (folder / "metrics.jsonl").exists()
    assert {file.name for file in folder.iterdir()} == {*MARKS, "logs", "metrics.jsonl"}
    with new_run_dir(config) as folder:
        assert not (folder / "metrics.jsonl").exists()


def test_nothing_is_left_when_writing_fails(tmp_path, monkeypatch):
    def fail():
        raise OSError("disk full")

    monkeypatch.setattr("gnnpar.train.rundir.describe_environment", fail)
    with pytest.raises(OSError, match="disk full"):
        create_run_dir(config_for(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
