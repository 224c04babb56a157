"""Runs in tables and plots: what is grouped, what is left out, and every figure by hand."""

import csv
import io
import json
import math
import os
import shlex
import statistics

import pytest
from study.made import SUMMARY, make_run

from gnnpar.cli import results as cli
from gnnpar.cli.table import bytes_text
from gnnpar.data.lock import file_lock
from gnnpar.errors import InputError
from gnnpar.study.groups import Spread, group, telling_keys
from gnnpar.study.runs import read_runs
from gnnpar.study.text import as_csv, as_latex, as_markdown, make_table

TESTS = (0.5, 0.6, 0.9)


@pytest.fixture
def folder(tmp_path):
    """Three seeds each of two systems, and one deeper run."""
    for seed, test in enumerate(TESTS):
        plain = ("dataset=karate", "system=full_batch", f"seed={seed}")
        make_run(tmp_path / f"a{seed}", *plain, test_accuracy=test, epoch_time_s=0.1 * (seed + 1))
        make_run(
            tmp_path / "deep" / f"b{seed}",
            *("dataset=karate", "system=gnnpipe", f"seed={seed}"),
            peak_memory_bytes=[2**20, (seed + 1) * 2**20],
        )
    make_run(tmp_path / "c", "dataset=karate", "system=full_batch", "model.num_layers=64", test_accuracy=None)
    return tmp_path


def groups_of(folder):
    return group(read_runs([folder]).runs)


def test_groups_are_all_but_the_seed(folder):
    groups = groups_of(folder)
    assert [one.seeds for one in groups] == [[0, 1, 2], [0], [0, 1, 2]]
    shallow, deep, pipe = groups
    assert shallow.spread("test_accuracy") == Spread(statistics.fmean(TESTS), statistics.stdev(TESTS))
    assert shallow.spread("test_accuracy").std == pytest.approx(0.2081665999)  # unbiased: over n - 1
    assert shallow.spread("epoch_time_s").mean == pytest.approx(0.2)
    assert pipe.memory == 4 * 2**20 and pipe.num_ranks == 2 and pipe.num_parameters == 1234
    assert math.isnan(deep.spread("test_accuracy").mean) and math.isnan(deep.spread("val_accuracy").std)


def test_columns_are_what_differs(folder):
    groups = groups_of(folder)
    # stages, chunks and the rest of GNNPipe are what its preset says, and its name tells it
    assert telling_keys(groups) == ["system", "model.num_layers"]
    assert telling_keys(groups[:1]) == []
    make_run(folder / "d", "dataset=karate", "system=gnnpipe", "batch.num_chunks=4")
    assert telling_keys(groups_of(folder)) == ["system", "model.num_layers", "batch.num_chunks"]


def test_commands_train_the_group_again(folder):
    shallow, deep, _ = groups_of(folder)
    assert shallow.command == "gnnpar sweep dataset=karate system=full_batch seed=0,1,2"
    assert deep.command == "gnnpar train dataset=karate system=full_batch model.num_layers=64"
    make_run(folder / "d", "dataset=npz", "dataset.path=a b.npz", "seed=7")
    (new,) = [one for one in groups_of(folder) if one.seeds == [7]]
    assert shlex.split(new.command) == ["gnnpar", "train", "dataset=npz", "dataset.path=a b.npz", "seed=7"]
    (folder / "d" / "command.txt").write_text("python 'my script.py'\n")
    (new,) = [one for one in groups_of(folder) if one.seeds == [7]]
    assert new.command == "python 'my script.py'"


def test_a_repeated_run_counts_once_the_last(folder):
    make_run(folder / "z", "dataset=karate", "system=full_batch", "seed=1", test_accuracy=0.1)
    os.utime(folder / "z" / "summary.json", (1, 1))
    found = read_runs([folder, folder / "deep"])
    assert len(found.runs) == 7
    assert [note.split(";")[0] for note in found.notes] == [
        "left out 1 that repeat a run of the same configuration and seed"
    ]
    assert {run.folder.name for run in found.runs} == {"a0", "a1", "a2", "b0", "b1", "b2", "c"}


def test_runs_that_do_not_count_are_named(folder):
    half = make_run(folder / "half", "seed=8", finished=False)
    (folder / ".half.1").mkdir()
    for name in ("config.yaml", "command.txt", "env.json"):
        (folder / ".half.1" / name).touch()
    (make_run(folder / "damaged", "seed=9") / "summary.json").write_text("{")
    (make_run(folder / "empty", "seed=10") / "summary.json").write_text("{}")
    (make_run(folder / "other", "seed=11") / "config.yaml").write_text("nonsense: 1\n")
    (make_run(folder / "words", "seed=12", val_accuracy="good"))
    with file_lock(half / ".lock", timeout_s=0, what="a run"):
        found = read_runs([folder])
    assert len(found.runs) == 7 and len(found.notes) == 5
    text = "\n".join(found.notes)
    for part in ("/half: it still runs (process", "/damaged: summary.json cannot be read", "/empty: summary"):
        assert part in text
    assert "/other: its configuration is not one of this version" in text and "nonsense" in text
    assert "/half: it has not finished" in "\n".join(read_runs([folder]).notes)
    with pytest.raises(InputError, match="there is no such folder"):
        read_runs([folder / "nowhere"])


def test_the_table(folder):
    table = make_table(groups_of(folder), bytes_text)
    assert table.title == "karate, gcnii"
    assert table.headings[:5] == ("system", "num_layers", "runs", "validation", "test")
    assert table.rows[0] == (
        *("full_batch", "32", "3", "90.00 ± 0.00", "66.67 ± 20.82"),
        *("1,234", "2", "2.0 MiB", "200 ± 100 ms"),
    )
    assert table.rows[1][2:5] == ("1", "90.00", "–") and table.align == "lrrrrrrrr"


def test_ogb_is_told_when_runs_are_missing(tmp_path):
    for seed in range(3):
        for name in ("arxiv", "papers100M", "products"):
            make_run(tmp_path / f"{name}{seed}", f"dataset=ogbn-{name}", f"seed={seed}")
    for seed in range(3, 10):
        make_run(tmp_path / f"products{seed}", "dataset=ogbn-products", f"seed={seed}")
    notes = make_table(groups_of(tmp_path), bytes_text).notes
    assert notes[1:] == ("OGB asks for 10 runs on ogbn-arxiv, with seeds from 0.",)


def test_markdown_csv_and_latex(folder):
    groups = groups_of(folder)
    lines = as_markdown(make_table(groups, bytes_text)).splitlines()
    assert lines[0] == "**karate, gcnii**" and lines[2].startswith("| system | num_layers | runs |")
    assert lines[4].endswith("| `gnnpar sweep dataset=karate system=full_batch seed=0,1,2` |")
    assert len({line.count("|") for line in lines[2:7]}) == 1
    rows = list(csv.DictReader(io.StringIO(as_csv(groups))))
    assert len(rows) == 3 and float(rows[0]["test_mean"]) == pytest.approx(statistics.fmean(TESTS))
    assert rows[0]["seeds"] == "0 1 2" and rows[1]["test_mean"] == "" and rows[2]["system"] == "gnnpipe"
    latex = as_latex(make_table(groups, bytes_text))
    assert r"full\_batch & 32 & 3 & 90.00 $\pm$ 0.00 & 66.67 $\pm$ 20.82 &" in latex
    assert latex.count(r"\\") == 4 and "% 1: gnnpar sweep" in latex


@pytest.mark.parametrize("form", cli.FORMATS)
def test_from_the_command_line(folder, form, capsys):
    (folder / "c" / "summary.json").unlink()
    assert cli.main([str(folder), f"format={form}"]) == 0
    printed = capsys.readouterr()
    assert "66.67" in printed.out or "0.66666666" in printed.out
    assert "gnnpar sweep dataset=karate system=gnnpipe seed=0,1,2" in printed.out
    assert printed.err == f"left out {folder}/c: it has not finished: no summary.json\n"
    if form == "json":
        rows = json.loads(printed.out)
        assert rows[0]["run_dirs"] == [str(folder / f"a{seed}") for seed in range(3)]


def test_no_runs_and_no_folder(tmp_path, capsys):
    for form in cli.FORMATS:
        assert cli.main([str(tmp_path), f"format={form}"]) == 0
    assert "no finished runs" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"plot.tiem=x.svg: is neither"):
        cli.main([str(tmp_path), "plot.tiem=x.svg"])


def axes_of(monkeypatch):
    from matplotlib.figure import Figure

    made = []
    real = Figure.subplots
    monkeypatch.setattr(Figure, "subplots", lambda self: made.append(real(self)) or made[-1])
    return made


def lines_of(axes):
    return {
        line.get_label(): (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def test_plots_show_what_the_runs_hold(folder, monkeypatch, capsys):
    made = axes_of(monkeypatch)
    make_run(folder / "e", "dataset=karate", "system=gnnpipe", "model.num_layers=64", test_accuracy=0.7)
    make_run(
        *(folder / "f", "dataset=karate", "system=gnnpipe", "parallel.stages=4"),
        epoch_time_s=0.25,
        peak_memory_bytes=[1] * 4,
    )
    plots = {"time": "time.svg", "depth": "depth.pdf", "speedup": "speed.png"}
    assert cli.main([str(folder), *(f"plot.{kind}={folder / file}" for kind, file in plots.items())]) == 0
    heads = [(folder / file).read_bytes()[:5] for file in plots.values()]
    assert heads == [b"<?xml", b"%PDF-", b"\x89PNG\r"]
    time, depth, speed = made
    assert next(iter(lines_of(time).values())) == ([0.5, 1.0], [50.0, 75.0])
    assert len(time.get_lines()) == 9
    containers = {one.get_label(): one.lines[0] for one in depth.containers}
    assert set(containers) == {"full_batch, stages=1", "gnnpipe, stages=2", "gnnpipe, stages=4"}
    line = containers["gnnpipe, stages=2"]
    assert [*line.get_xdata()] == [32, 64] and [*line.get_ydata()] == pytest.approx([80, 70])
    label, points = next(item for item in lines_of(speed).items() if item[0].startswith("gnnpipe"))
    assert "on 2" in label and lines_of(speed)["linear"] == ([2.0, 4.0], [1.0, 2.0])
    assert points[0][:2] == [2.0, 4.0] and points[1][:2] == pytest.approx([0.2 / 0.5, 0.2 / 0.25])


def test_plots_that_cannot_be(folder, tmp_path):
    for words, message in (
        (["plot.time=x.gif"], "must end in"),
        ([f"plot.time={tmp_path}/nowhere/x.svg"], "cannot write"),
        (["plot.speedup=x.svg"], "same number of ranks"),
    ):
        with pytest.raises(InputError, match=message):
            cli.main([str(folder), *words])
    (folder / "a0" / "metrics.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"metrics.jsonl: cannot be read"):
        cli.main([str(folder), f"plot.time={tmp_path}/x.svg"])
    for path in folder.glob("deep/*/summary.json"):
        path.unlink()
    (folder / "c" / "summary.json").unlink()
    with pytest.raises(InputError, match=r"same model.num_layers"):
        cli.main([str(folder), "plot.depth=x.svg"])


def test_a_made_run_has_the_figures_of_a_real_summary():
    from gnnpar.study.runs import NUMBERS

    assert {*NUMBERS, "metric", "peak_memory_bytes"} <= set(SUMMARY)
