"""`gnnpar report` on a real traced run of two processes, whole and in pieces; the page without a browser."""

import json
import shutil
from html.parser import HTMLParser

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar import fit
from gnnpar.cli.main import main
from gnnpar.model import LayerStack
from gnnpar.model.layers import GCN
from gnnpar.report.measure import measure
from gnnpar.report.run import read_runs
from gnnpar.trace.attribution import CATEGORIES

EPOCHS = 6
SECTIONS = {
    "summary",
    "curves",
    "breakdown",
    "step-0",
    "bytes",
    "staleness",
    "memory",
    "taxonomy",
    "environment",
}
VOID = {"meta", "br"}
CLOSED = {"line", "path", "circle", "rect"}
"""Elements of SVG that may close themselves."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The directory of a run in two pipeline stages."""
    folder = tmp_path_factory.mktemp("report") / "run"
    keys = ["trace.enabled=true", f"train.num_epochs={EPOCHS}", "train.eval_every=3", f"run.dir={folder}"]
    keys += ["trace.tensorboard=false", "launch.timeout_s=60"]
    graph = tiny_graph(num_nodes=60, dtype=torch.float32)
    graph = graph.replace(y=torch.arange(graph.num_nodes) % 3)
    model = LayerStack(
        encoder=nn.Linear(graph.num_features, 16),
        layers=[GCN(16, 16) for _ in range(4)],
        decoder=nn.Linear(16, graph.num_classes),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNPAR_DATA", str(folder.parent / "home"))
        fit(model, graph, "gnnpipe", stages=2, chunks=4, overrides=keys)
    return folder


@pytest.fixture
def run_dir(traced, tmp_path):
    """A copy, to break."""
    return shutil.copytree(traced, tmp_path / "a run")


class Page(HTMLParser):
    """Tags in balance, sections, scripts of data, and whatever would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sections, self.data, self.loads, self.titles = [], set(), {}, [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.loads += [attributes[key] for key in ("src", "href", "data", "srcset") if key in attributes]
        if tag == "section":
            self.sections.add(attributes["id"])
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSED

    def handle_data(self, text):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data[attributes["id"]] = json.loads(text)
        if tag in ("h1", "h2", "h3"):
            self.titles.append(text)


def report(*arguments):
    assert main(["report", *map(str, arguments)]) == 0


def page_of(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 3 << 20 and "http://" not in text.replace("http://www.w3.org", "")
    page = Page(text)
    assert page.loads == [] and "@import" not in text and "url(" not in text
    return page


def test_a_traced_run_has_all_sections_and_a_timeline(run_dir, capsys):
    report(run_dir)
    assert capsys.readouterr().out.strip() == str(run_dir / "report.html")
    page = page_of(run_dir / "report.html")
    assert page.sections == SECTIONS
    (data,) = page.data.values()
    assert [lane["name"] for lane in data["lanes"]] == ["rank 0", "rank 1"]
    for lane in data["lanes"]:
        planned, done, inside = lane["rows"]
        assert len(planned) == len(done) == 8  # four micro-batches, forward and backward
        for begin, length, category, text in (*done, *inside):
            assert begin >= -0.2 and begin + length <= data["end"] + 0.2
            assert 0 <= category < len(data["categories"]) and 0 <= text < len(data["texts"])
        covered = sum(length for _, length, _, _ in inside)
        assert 0 < covered <= 1.001 * data["end"]
    # How much of the step these are depends on what else the machine does.
    assert 0 < sum(length for _, _, length in data["path"]) <= 1.001 * data["end"]


def test_the_run_left_a_trace_for_perfetto_and_what_is_read_from_its_events(run_dir):
    names = {event["name"] for event in json.loads((run_dir / "trace.json").read_text())["traceEvents"]}
    assert {"epoch 1", f"epoch {EPOCHS}", "0F0", "1B3", "wait stage", "aggregate"} <= names
    (run,) = read_runs([run_dir])
    measured = measure(run)
    summary = run.summary
    assert measured.epochs == [3, 4, 5] and [rank.rank for rank in measured.breakdown] == [0, 1]
    sent = {kind: sum(v for (one, _, _), v in measured.sent.items() if one == kind) for kind in ("stage",)}
    assert sent["stage"] == summary["bytes_per_epoch"]["stage"]
    assert run.schedule.num_micro_batches == 4 and run.twice.num_micro_batches == 8
    found = measured.what_if
    assert 0 < found.free_network <= found.replayed + 1e-9
    assert measured.prediction.twice > 0 and len(measured.prediction.errors) == 2
    assert all(len(points) == EPOCHS for points in measured.memory)


def test_several_runs_stand_side_by_side(traced, run_dir, tmp_path):
    out = tmp_path / "page.html"
    report(traced, run_dir, f"out={out}")
    page = page_of(out)
    assert SECTIONS | {"step-1"} == page.sections and len(page.data) == 2
    assert "2 runs" in page.titles


def test_markdown_and_figures(run_dir, tmp_path, capsys):
    report(run_dir, "format=md", f"figures={tmp_path / 'figures'}", f"trace={tmp_path / 'again.json'}")
    text = (run_dir / "report.md").read_text()
    assert "## Where an epoch goes" in text and "| bubble |" in text and "## What if" in text
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    drawn = {f"{name}.{ending}" for name in ("breakdown", "curves") for ending in ("pdf", "svg")}
    assert names == drawn | {"step-a run.svg"}
    assert "0 plan" in (tmp_path / "figures" / "step-a run.svg").read_text()
    again, first = (
        json.loads(path.read_text()) for path in (tmp_path / "again.json", run_dir / "trace.json")
    )
    assert again == first
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(names)


def test_a_run_that_was_cut_off_is_shown_as_far_as_it_got(run_dir):
    (run_dir / "summary.json").unlink()
    metrics = run_dir / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-20])
    log = run_dir / "trace" / "rank1.events"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    report(run_dir)
    page_of(run_dir / "report.html")
    (run,) = read_runs([run_dir])
    assert len(run.epochs) == EPOCHS - 1 and len(run.notes) == 3 and run.logs[1].cut
    assert measure(run).epochs[-1] < EPOCHS


def test_a_run_without_a_trace_shows_the_rest(run_dir):
    shutil.rmtree(run_dir / "trace")
    report(run_dir)
    page = page_of(run_dir / "report.html")
    assert page.sections == {"summary", "curves", "staleness", "taxonomy", "environment"} and page.data == {}
    assert "not traced" in fault(run_dir, f"trace={run_dir / 'x.json'}")


def test_categories_have_a_colour():
    from gnnpar.report.charts import slug
    from gnnpar.report.figures import COLOURS
    from gnnpar.report.page import ASSETS

    style = (ASSETS / "page.css").read_text()
    assert all(f".{slug(category)} " in style for category in (*CATEGORIES, "waiting"))
    assert tuple(COLOURS) == CATEGORIES


def fault(*arguments):
    """The message of an exit with code 2."""
    import contextlib
    import io

    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        assert main(["report", *map(str, arguments)]) == 2
    text = stream.getvalue()
    assert text.startswith("error: ") and len(text.splitlines()) < 12 and "Traceback" not in text
    return text


def test_what_is_no_run_is_refused_in_a_few_words(run_dir, tmp_path):
    assert "give at least one run directory" in fault()
    text = fault(tmp_path / "nowhere", tmp_path)
    assert "nowhere: does not exist" in text and "no config.yaml, command.txt, env.json" in text
    assert f"did you mean {run_dir}?" in text
    assert "is a file" in fault(run_dir / "config.yaml")
    assert "there is no such option; options are format, out" in fault(run_dir, "colour=red")
    assert "there is no format 'pdf'" in fault(run_dir, "format=pdf")
    assert "cannot write" in fault(run_dir, f"out={tmp_path / 'no' / 'page.html'}")
    assert "takes one run" in fault(run_dir, tmp_path, "trace=x.json")
    (run_dir / "trace" / "rank1.events").write_bytes(b"x")
    (run_dir / "summary.json").write_text('{"metric": "acc')
    assert "not a log of events" in fault(run_dir) or "cannot be read as JSON" in fault(run_dir)
    (run_dir / "summary.json").unlink()
    (run_dir / "trace" / "rank0.events").unlink()
    (run_dir / "trace" / "rank1.events").rename(run_dir / "trace" / "rank1.old")
    (run_dir / "config.yaml").write_text("model: {name: gcn")
    assert "cannot be read as YAML" in fault(run_dir)
