"""`gnnpar simulate` and `gnnpar systems`."""

import json

import pytest

from gnnpar.cli import simulate, systems
from gnnpar.errors import InputError
from gnnpar.schedule import Schedule
from gnnpar.schedule.families import FAMILIES


def printed(capsys, module, *argv):
    assert module.main(list(argv)) == 0
    return capsys.readouterr().out


def test_json_holds_what_is_promised(capsys):
    argv = "schedule=zb_h1 stages=4 micro_batches=16 costs.F=1 costs.I=1 costs.W=1 format=json"
    out = printed(capsys, simulate, *argv.split())
    found = json.loads(out)
    assert found["makespan"] == 3 * 16 + 3 and found["idle"] == [3.0] * 4
    assert found["bubble"] == pytest.approx(3 / 51) and found["peak_in_flight"] == [4] * 4
    assert found["messages"] == 2 * 3 * 16
    assert [len(row) for row in found["actions"]] == [3 * 16 + 1] * 4 and found["actions"][3][0] == "3F0"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_drawn(name, capsys):
    out = printed(capsys, simulate, f"schedule={name}", "stages=4", "micro_batches=8")
    assert out.startswith("rank 0") and "makespan" in out and "bubble" in out


def test_options_of_families_and_costs_by_stage(capsys):
    argv = ["stages=2", "micro_batches=4", "format=json"]
    three = json.loads(printed(capsys, simulate, "schedule=interleaved", "chunks=3", *argv))
    assert three["stages"] == 6 and three["idle"] == [3.0, 3.0]
    slow = json.loads(printed(capsys, simulate, "schedule=gpipe", "costs.F=[1,3]", "costs.B=2", *argv))
    assert slow["busy"] == [4 * 3, 4 * 5]
    graph = ["schedule=graphpipe", "stages=4", "micro_batches=2", "edges=0>2,1>2,2>3", "format=json"]
    assert json.loads(printed(capsys, simulate, *graph))["makespan"] == (2 + 2) * 3


def test_bapipe_blocks_in_its_messages(capsys):
    argv = (
        "schedule=bapipe_1f1b_sno stages=3 micro_batches=6 costs.F=1 costs.B=2 costs.message=0.25 format=json"
    )
    assert json.loads(printed(capsys, simulate, *argv.split()))["makespan"] == 27.5
    more = [*argv.split(), "messages=rendezvous"]
    assert json.loads(printed(capsys, simulate, *more))["makespan"] == 29.5


def test_files_are_written_and_read_again(capsys, tmp_path):
    names = {key: tmp_path / f"plan.{key}" for key in ("svg", "trace", "text")}
    argv = [f"{key}={path}" for key, path in names.items()]
    first = printed(capsys, simulate, "schedule=chimera", "stages=4", "micro_batches=4", *argv)
    assert names["svg"].read_text().startswith("<svg")
    assert json.loads(names["trace"].read_text())["traceEvents"]
    assert Schedule.from_text(names["text"].read_text()) == FAMILIES["chimera"](4, 4)
    assert printed(capsys, simulate, f"schedule={names['text']}") == first


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            "schedule=zb_h3 stages=x costs.G=1 foo",
            ["did you mean zb_h2?", "stages", "micro_batches", "costs.G", "foo"],
        ),
        ("stages=2 micro_batches=2", ["schedule: is missing"]),
        ("schedule=gpipe stages=2 micro_batches=2 chunks=2", ["chunks: unknown to schedule gpipe"]),
        ("schedule=interleaved stages=2 micro_batches=2 chunks=two", ["chunks: must be a whole number"]),
        ("schedule=gpipe stages=2 micro_batches=2 costs.F=fast", ["costs.F: must be a number"]),
        ("schedule=gpipe stages=2 micro_batches=2 costs.F=1,2,3", ["F: 3 numbers for 2 stages"]),
        ("schedule=gpipe stages=2 micro_batches=2 costs.F=-1", ["F: must not be negative"]),
        ("schedule=gpipe stages=2 micro_batches=2 costs.F=inf", ["F: must not be negative or infinite"]),
        ("schedule=gpipe stages=2 micro_batches=2 costs.latency=-1", ["latency: must not be negative"]),
        ("schedule=gpipe stages=2 micro_batch=2", ["micro_batches: is missing", "micro_batch: unknown"]),
        ("schedule=gpipe stages=2 micro_batches=2 cost.F=1", ["cost.F: unknown", "did you mean costs.F?"]),
        ("schedule=gpipe stages=40000 micro_batches=1", ["stages: must be at least 1 and at most 32,767"]),
        ("schedule=interleaved stages=2 micro_batches=2 chunks=[1,2]", ["chunks: must be one whole number"]),
        ("schedule=one_f_one_b stages=2 micro_batches=2 advance=1,2,3", ["advance: 3 numbers for 2 stages"]),
        ("schedule=one_f_one_b stages=2 micro_batches=2 batch=chunk", ["schedule=gpipe", ">0B0<"]),
        ("schedule=gpipe stages=2 micro_batches=2 format=xml", ["choose table, json"]),
        ("schedule=gpipe stages=2 micro_batches=2 svg=/nowhere/at/all.svg", ["cannot be written"]),
    ],
)
def test_mistakes_are_named(argv, words):
    with pytest.raises(InputError) as caught:
        simulate.main(argv.split())
    for word in words:
        assert word in str(caught.value)


def test_ways_of_a_rank_reduce_at_the_cost_that_is_given(capsys):
    argv = ["schedule=gpipe", "stages=4", "micro_batches=4", "costs.ways=2", "format=json"]
    plain, dear = (
        json.loads(printed(capsys, simulate, *argv, *more))["makespan"] for more in ((), ("costs.reduce=50",))
    )
    assert dear == plain + 50  # the first stage's is the last to begin, with nothing left to hide it


def test_systems_lists_every_family_preset_and_relation(capsys):
    found = {row["system"]: row for row in json.loads(printed(capsys, systems, "format=json"))}
    assert {*FAMILIES, "gnnpipe", "full_batch", "ampnet", "wpipe", "pipefisher"} <= set(found)
    gpipe, chimera = found["gpipe"], found["chimera"]
    assert gpipe["bubble"] == pytest.approx(3 / 19) and gpipe["peak_activations"] == 16
    assert gpipe["exact"] == "clusters, chunks" and gpipe["messages"] == 96
    assert chimera["weight_copies"] == 2 and found["interleaved"]["peak_activations"] == 5.5
    assert found["one_f_one_b"]["exact"] == chimera["exact"] == "clusters, chunks γ=0"


def test_systems_says_where_a_family_is_not_defined(capsys):
    out = printed(capsys, systems, "stages=3", "micro_batches=6")
    (line,) = [line for line in out.splitlines() if line.startswith("chimera")]
    assert "not defined here" in line and "use 4" in line


@pytest.mark.parametrize("argv", [["stages=0"], ["x=1"], ["micro_batches=-2"], ["overlap=half"]])
def test_systems_refuses_mistakes(argv):
    with pytest.raises(InputError):
        systems.main(argv)


@pytest.mark.parametrize("module", [simulate, systems])
def test_help(module, capsys):
    assert printed(capsys, module, "--help").startswith("usage: gnnpar")
