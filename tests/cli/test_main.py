"""The command line: help, exit codes, messages without tracebacks."""

import json
import logging
import subprocess
import sys

import pytest

from gnnpar.cli import doctor, train
from gnnpar.cli.main import COMMANDS, main
from gnnpar.cli.options import split_options
from gnnpar.cli.table import bytes_text, print_json, print_rows, seconds_text
from gnnpar.errors import InputError, RunError


@pytest.fixture(autouse=True)
def loggers_as_before():
    root = logging.getLogger("gnnpar")
    before = (root.handlers, root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert main([]) == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: gnnpar {name}")


def test_help_of_train_lists_the_groups(capsys):
    main(["train", "--help"])
    out = capsys.readouterr().out
    names = out.partition("system=")[2].partition("\n\n")[0].split()
    assert {"full_batch", "gnnpipe", "gpipe", "chimera", "zb_v"} <= set(names)


def test_a_misspelt_command_is_a_mistake(capsys):
    assert main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err


def test_faults_are_listed_without_a_traceback(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "train.lrr=1", "model.hidden=-1"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: configuration: 2 faults",
        "  - train.lrr: there is no such key; did you mean train.lr?",
        "  - model.hidden: must be at least 1, got -1",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("data", ["broken"]), 2, "error: data: broken\n"),
        (RunError("rank 1 was killed"), 1, "error: rank 1 was killed\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_exit_codes(error, code, text, capsys, monkeypatch):
    def fail(argv):
        raise error

    monkeypatch.setattr(doctor, "main", fail)
    assert main(["doctor"]) == code
    assert capsys.readouterr().err == text


def test_only_the_first_of_many_processes_reports_a_mistake(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "zebra=1"]) == 2
    assert capsys.readouterr().err == ""


def test_errors_of_ours_alone_are_made_short(monkeypatch):
    def fail(argv):
        raise ValueError("a bug of ours")

    monkeypatch.setattr(doctor, "main", fail)
    with pytest.raises(ValueError, match="a bug of ours"):
        main(["doctor"])


def test_run_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "gnnpar", "--version"], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.strip()[0].isdecimal()


def test_a_mistake_is_told_before_torch_is_imported():
    code = (
        "import sys; import gnnpar.cli.main as m; m.main(['train', 'a=1']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


def test_options_are_taken_out():
    assert split_options(["a=1", "format=json", "b"]) == ({"format": "json"}, ["a=1", "b"])
    assert split_options([]) == ({"format": "table"}, [])
    assert split_options(["out=x=y"], {"out": ()}) == ({"out": "x=y"}, [])
    with pytest.raises(InputError, match="did you mean json"):
        split_options(["format=jsn"])


def test_doctor_reports_this_machine(capsys):
    assert main(["doctor", "format=json"]) == 0
    report = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert report["torch"]["status"] == "ok"
    assert report["gloo"]["status"] == "ok"
    assert report["numba compiles"]["status"] == "ok"
    assert report["kahip"]["status"] in ("ok", "missing")


@pytest.mark.parametrize(("module", "shim"), [("import torchdata_that_is_not_there", True), ("", False)])
def test_doctor_says_where_dgl_needs_help(module, shim, tmp_path, monkeypatch):
    (tmp_path / "dgl.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor._with_shim(doctor.Check("dgl", "ok", "2.1.0"))
    assert found.status == "ok" and found.detail.startswith("2.1.0")
    assert ("through gnnpar.interop.dgl.import_dgl()" in found.detail) == shim
    assert ("torchdata_that_is_not_there" in found.detail) == shim


def test_doctor_shows_the_original_error_of_a_broken_package(capsys, monkeypatch):
    import importlib

    real = importlib.import_module

    def broken(name, *rest):
        if name == "scipy":
            raise OSError("libfoo.so: undefined symbol")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", broken)
    monkeypatch.setattr(doctor, "OPTIONAL", {})
    by_name = {check.name: check for check in doctor.checks()}
    assert by_name["scipy"].status == "error"
    assert by_name["scipy"].detail == "OSError: libfoo.so: undefined symbol"


def test_doctor_takes_no_keys(capsys):
    assert main(["doctor", "seed=1"]) == 2


def test_tables_keep_long_values_whole_without_a_terminal(capsys):
    print_rows("title", ["name", "number"], [("a" * 90, "1"), ("[b]", "22")], align="lr")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "title"
    assert any(line.startswith("a" * 90) for line in lines)
    assert lines[-1].startswith("[b]")
    assert lines[-1].endswith("22")


def test_json_has_no_nan(capsys):
    print_json({"a": [float("nan"), 1.5], "b": float("inf")})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": None}


def test_units():
    assert [bytes_text(count) for count in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5120.0 GiB",
    ]
    assert [seconds_text(time) for time in (0.0123, 1.5, 75)] == ["12.3 ms", "1.5 s", "75 s"]


SUMMARY = {
    "metric": "accuracy",
    "train_accuracy": 1.0,
    "val_accuracy": 0.9,
    "test_accuracy": 0.8765,
    "best_epoch": 7,
    "epoch_time_s": 0.05,
    "eval_time_s": 0.01,
    "bytes_per_epoch": {"stage": 2048, "halo": 0},
    "bubble": 0.2,
    "bubble_theory": 1 / 9,
    "history_age_mean": 1.0,
    "history_age_max": 1,
    "halo_age_mean": 0.0,
    "halo_age_max": 0,
    "history_read_share": 0.25,
    "peak_memory_bytes": [1 << 20, 2 << 20],
    "run_dir": "/somewhere",
}


def test_the_summary_shows_every_figure():
    text = " | ".join(value for _, value in train.summary_pairs(SUMMARY))
    for part in (
        "100.00% train",
        "90.00% val",
        "87.65% test",
        "epoch 7",
        "50 ms",
        "10 ms",
        "stage 2.0 KiB",
    ):
        assert part in text
    for part in (
        "20.00% measured",
        "11.11% in theory",
        "mean 1.00, max 1",
        "25.00%",
        "1.0 MiB, 2.0 MiB",
    ):
        assert part in text


def test_the_summary_names_the_metric_and_what_was_kept():
    assert next(train.summary_pairs(SUMMARY))[0] == "accuracy at the best validation epoch"
    unvalidated = SUMMARY | {"metric": "rocauc", "val_accuracy": float("nan")}
    name, value = next(train.summary_pairs(unvalidated))
    assert name == "ROC-AUC (no validation set: last epoch kept)"
    assert value == "100.00% train, 87.65% test (epoch 7)"


def test_one_rank_and_one_chunk_have_no_bubble_and_no_history():
    single = SUMMARY | {"peak_memory_bytes": [1 << 20], "history_read_share": 0.0}
    names = [name for name, _ in train.summary_pairs(single)]
    assert names == ["accuracy at the best validation epoch", "epoch time, median", "peak memory by rank"]


def test_a_folder_is_shown_from_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(train._shown(tmp_path / "results" / "run")) == "results/run"
    assert train._shown(tmp_path.parent) == tmp_path.parent
