"""`gnnpar analyze`: tables, JSON, faults; no process is started."""

import json

import pytest

from gnnpar.analysis import analyze
from gnnpar.cli.main import main
from gnnpar.config import compose
from gnnpar.errors import InputError
from gnnpar.model import GCN, Decoder, Encoder, LayerStack

KEYS = ["dataset=karate", "model.num_layers=4", "model.hidden=8"]
KEYS += ["partition.method=range", "partition.inner_order=none"]  # METIS runs in a child process


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    def refuse(*_args, **_keys):
        raise AssertionError("a process was started")

    monkeypatch.setattr("gnnpar.dist.launch.launch_workers", refuse)


def run_json(capsys, *overrides):
    assert main(["analyze", *KEYS, *overrides, "format=json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tables(capsys):
    assert main(["analyze", *KEYS, "model=gat", "model.hidden=16", "system=gnnpipe_hybrid"]) == 0
    out = capsys.readouterr().out
    for text in ("A-GNN", "2nk²", "edge softmax", "⊕, reduce", "neighbour-sampled", "←  chunks with history"):
        assert text in out, text
    for text in ("Taxonomy", "2 ways", "0 → 1", "halo", "Z and D", "process 0"):
        assert text in out, text


def test_json_holds_every_part(capsys):
    found = run_json(capsys, "model=gcnii", "system=gnnpipe", "parallel.layers_per_stage=[2,2]")
    assert found["sizes"]["n"] == 34 and found["sizes"]["k"] == 8
    assert [layer["name"] for layer in found["layers"]][:2] == ["encoder", "layers.0"]
    layer = found["layers"][1]
    assert layer["class"]["name"] == "C-GNN"
    phases = layer["forward"]["work_by_phase"]
    assert sum(one["value"] for one in phases.values()) == layer["forward"]["work"]["value"]
    kernels = layer["backward"]["work_by_kernel"]
    assert sum(one["value"] for one in kernels.values()) == layer["backward"]["work"]["value"]
    assert found["work"]["value"] == found["forward_work"]["value"] + found["backward_work"]["value"]
    assert [one["kind"] for one in found["schemes"] if one["own"]] == ["chunks"]
    assert found["bytes_per_epoch"]["stage"] == 2 * 2 * 34 * 8 * 4  # h and h0, there and back, float32
    assert found["layers_per_stage"] == [2, 2] and found["split_is_given"] and found["notes"] == []
    assert len(found["memory"]) == 2 and found["taxonomy"]["macro"] == 2


def test_stages_are_balanced_by_counted_work_and_it_says_so(capsys):
    found = run_json(capsys, "model=gcn", "system=gnnpipe", "parallel.stages=3")
    assert sum(found["layers_per_stage"]) == 4 and not found["split_is_given"]
    assert "counted work" in found["notes"][0]


def test_clusters_are_counted_on_the_edges_that_are_left(capsys):
    found = run_json(capsys, "model=gcn", "system=gpipe")
    whole = run_json(capsys, "model=gcn", "system=full_batch")
    assert found["sizes"]["m"] < whole["sizes"]["m"]
    clusters = next(one for one in found["schemes"] if one["own"])
    assert clusters["kind"] == "clusters" and clusters["work"]["value"] == found["work"]["value"]
    assert next(one for one in whole["schemes"] if one["own"])["kind"] == "full"


def test_presets_have_a_row_each(capsys, monkeypatch):
    few = {"system": ["gnnpipe", "gnnpipe_hybrid", "gpipe"]}  # all of them: tests/analysis/test_taxonomy.py
    monkeypatch.setattr("gnnpar.cli.analyze.group_choices", lambda: few)
    assert main(["analyze", "presets=true", "format=json"]) == 0
    rows = {row["system"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["gnnpipe"]["mini_batch"] == "dependent" and rows["gpipe"]["mini_batch"] == "independent"
    assert main(["analyze", "presets=true"]) == 0
    assert "gnnpipe_hybrid" in capsys.readouterr().out


def test_what_would_keep_a_run_from_starting_is_told(capsys):
    assert main(["analyze", *KEYS, "batch.num_chunks=99", "system=one_f_one_b"]) == 2
    assert "only 34 vertices" in capsys.readouterr().err
    assert main(["analyze", "modell=gat"]) == 2
    assert "did you mean model" in capsys.readouterr().err
    assert main(["analyze", "fanout=0", "seeds=x"]) == 2
    assert capsys.readouterr().err.count("positive whole number") == 2
    assert main(["analyze", "presets=true", "model=gat"]) == 2
    assert "takes no other keys" in capsys.readouterr().err


def test_a_model_of_one_s_own():
    from gnnpar.data import load

    graph = load(compose(["dataset=karate"]).dataset)
    layers = [GCN(6, 6), GCN(6, 6)]
    model = LayerStack(Encoder(graph.num_features, 6), layers, Decoder(6, graph.num_classes))
    config = compose([*KEYS, "system=gnnpipe", "model.num_layers=2", "batch.num_chunks=4"])
    found = analyze(config, graph, model)
    assert found.bytes_by_kind["stage"] == 2 * 34 * 6 * 4
    assert found.layers_per_stage == (1, 1)
    with pytest.raises(InputError, match="width"):
        analyze(config, graph, LayerStack(Encoder(graph.num_features, 5), layers, Decoder(6, 2)))
