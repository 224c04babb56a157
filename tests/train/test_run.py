"""What is checked before the first process starts, and the result that is read at the end."""

import json
import math

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar.config import compose
from gnnpar.errors import InputError
from gnnpar.history import MappedRows
from gnnpar.model import LayerStack
from gnnpar.model.layers import GCN
from gnnpar.train.run import RunResult, prepare, start

BASE = ["model.num_layers=3", "batch.num_chunks=4"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sound():
    graph = tiny_graph(dtype=torch.float32)
    return graph.replace(y=torch.arange(graph.num_nodes) % 3)


def faults_of(graph, *overrides, model=None):
    with pytest.raises(InputError) as caught:
        prepare(compose([*BASE, *overrides]), graph, model)
    return caught.value.faults


def test_a_sound_run_is_cut_into_chunks_and_the_cut_is_kept(sound, tmp_path):
    chunked = prepare(compose(BASE), sound, None)
    assert chunked.num_chunks == 4
    assert sorted(chunked.graph.node_ids.tolist()) == list(range(40))
    assert len(list((tmp_path / "home" / "partitions").glob("*.npz"))) == 1
    assert torch.equal(prepare(compose(BASE), sound, None).graph.node_ids, chunked.graph.node_ids)


def test_the_balance_told_is_that_of_the_costs_the_cut_was_made_for(sound, caplog):
    caplog.set_level("INFO", logger="gnnpar")
    costs = ["partition.method=range", "partition.cost_vertex=1", "partition.cost_edge=0"]
    prepare(compose([*BASE, *costs]), sound, None)
    (text,) = [text for text in caplog.messages if text.startswith("range, 4 parts")]
    assert "cost 1.000" in text and "edges 1.000" not in text


def test_micro_batches_split_over_ways_are_cut_further(sound):
    shared = ["batch.kind=clusters", "parallel.stages=2", "parallel.ways=[3,2]"]
    assert prepare(compose([*BASE, *shared]), sound, None).num_chunks == 24
    (fault,) = faults_of(sound, *shared, "batch.num_chunks=7")
    assert "7 micro-batches of 6 chunks each, for parallel.ways=[3, 2]" in fault and "use 6 or fewer" in fault
    (fault,) = faults_of(sound, *shared, "parallel.ways=[7,8]")
    assert "of 56 chunks each" in fault and "use fewer ways" in fault


def test_ways_that_read_each_other_need_models_that_look_at_rows_one_by_one(sound):
    keys = ["parallel.ways=2", "model.name=gcn", "model.norm=batch"]
    (fault,) = faults_of(sound, *keys)
    assert fault.startswith("parallel.ways: ") and "use model.norm=layer" in fault
    for cure in ("model.norm=layer", "batch.kind=clusters", "parallel.ways=1"):
        prepare(compose([*BASE, *keys, cure]), sound, None)


def test_joined_chunks_need_models_that_look_at_rows_one_by_one(sound):
    keys = ["batch.joined=2", "model.name=gcn", "model.norm=batch"]
    (fault,) = faults_of(sound, *keys)
    assert fault.startswith("batch.joined: ") and "use model.norm=layer" in fault
    for cure in ("model.norm=layer", "batch.joined=1"):
        prepare(compose([*BASE, *keys, cure]), sound, None)


def test_histories_of_another_graph_are_refused_before_anything_starts(sound, tmp_path):
    keys = ["history.store=disk", f"history.dir={tmp_path}"]
    chunked = prepare(compose([*BASE, *keys]), sound, None)
    rows = MappedRows(tmp_path / "rank0-replica0-layer1.rows", chunked.graph, 1)
    rows.open(40, 8, torch.float32)
    prepare(compose([*BASE, *keys]), sound, None)
    (fault,) = faults_of(sound, *keys, "partition.method=random")
    assert fault.startswith("history.dir: ") and "choose another folder" in fault


def test_a_sample_of_rows_needs_fixed_linear_aggregations(sound):
    keys = ["system=bns_gcn", "batch.num_chunks=1", "model.name=gat"]
    (fault,) = faults_of(sound, *keys)
    assert fault.startswith("halo.mode: ") and "not for GAT" in fault
    for cure in ("model.name=sage", "halo.mode=stale"):
        rate = ["halo.rate=1"] if "stale" in cure else []
        prepare(compose([*BASE, *keys, cure, *rate]), sound, None)


def test_more_ways_than_vertices_are_refused(sound):
    (fault,) = faults_of(sound, "system=graph_parallel", "batch.num_chunks=1", "parallel.ways=41")
    assert "use fewer ways" in fault


def test_features_are_split_for_fixed_linear_aggregations_only(sound):
    keys = ["system=feature_parallel", "batch.num_chunks=1", "model.name=gat", "model.heads=2"]
    (fault,) = faults_of(sound, *keys)
    assert fault.startswith("parallel.split: layers.0 (GAT)") and "use parallel.split=vertices" in fault
    for cure in ("parallel.split=vertices", "model.name=sage"):
        prepare(compose([*BASE, *keys, cure]), sound, None)


def test_labels_that_look_like_classes_are_told(sound, caplog):
    one_hot = nn.functional.one_hot(sound.y, 3).float()
    prepare(compose(BASE), sound.replace(y=one_hot), None)
    assert any("taken as multi-label" in text for text in caplog.messages)
    caplog.clear()
    several = one_hot.clone()
    several[0] = 1
    prepare(compose(BASE), sound.replace(y=several), None)
    assert not any("multi-label" in text for text in caplog.messages)


def test_faults_of_graph_configuration_and_model_come_together(sound, tmp_path):
    x, indices = sound.x.clone(), sound.indices.clone()
    x[3, 1], indices[0] = math.nan, 99
    graph = sound.replace(x=x, indices=indices, val_mask=sound.train_mask)
    wide = LayerStack(nn.Linear(7, 8), [GCN(8, 8), GCN(9, 9)], nn.Linear(9, 3))
    faults = faults_of(
        graph,
        "batch.num_chunks=50",
        "device=cuda",
        "train.metric=rocauc",
        "parallel.stages=3",
        model=wide,
    )
    starts = {fault.split(":")[0] for fault in faults}
    assert starts >= {"device", "edge index", "features", "batch.num_chunks", "train.metric"}
    assert any("overlap" in fault for fault in faults)
    assert any(fault.startswith("parallel.stages: 3 stages, but the model has 2 layers") for fault in faults)
    assert any(fault.startswith("layers.0 (GCN) gives width 8; the next one, layers.1") for fault in faults)
    assert not (tmp_path / "home").exists() and not (tmp_path / "results").exists()


def test_each_fault_says_what_to_do(sound):
    (chunks,) = faults_of(sound, "batch.num_chunks=41")
    assert chunks.endswith("41 chunks, but the graph has only 40 vertices; use 40 or fewer")
    (metric,) = faults_of(sound, "train.metric=rocauc")
    assert metric.endswith("so use accuracy")
    (features,) = faults_of(sound.replace(x=None))
    assert features.endswith("give it x")


def test_a_graph_without_labels_is_refused_before_a_model_is_made(sound):
    graph = sound.replace(y=torch.full((40,), -1), num_classes=0)
    assert any(fault.startswith("labels: no vertex has one") for fault in faults_of(graph))


def test_a_refused_convolution_names_layer_and_reason(sound):
    convolutions = pytest.importorskip("torch_geometric.nn")
    layers = [convolutions.GCNConv(8, 8), convolutions.ChebConv(8, 8, K=3)]
    model = LayerStack(nn.Linear(7, 8), layers, nn.Linear(8, 3))
    (fault,) = faults_of(sound, model=model)
    assert fault.startswith("layers.1 (ChebConv): ") and "one hop" in fault


def test_a_run_that_is_stopped_says_where_it_wrote(sound, tmp_path, monkeypatch, caplog):
    def stop(run_dir, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gnnpar.dist.launch.launch_workers", stop)
    with pytest.raises(KeyboardInterrupt):
        start(compose([*BASE, "run.dir=out"]), lambda: sound, None, ())
    assert f"stopped; what was written until then is in {tmp_path / 'out'}" in caplog.messages
    assert not (tmp_path / "out" / ".job").exists() and not (tmp_path / "out" / ".lock").exists()


def test_a_result_is_read_from_its_directory(tmp_path):
    summary = {
        "metric": "rocauc",
        "test_accuracy": 0.5,
        "val_accuracy": None,
        "best_epoch": 7,
        "epoch_time_s": 0.25,
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    torch.save({"decoder.bias": torch.ones(2)}, tmp_path / "model.pt")
    result = RunResult.read(tmp_path)
    assert (result.test_accuracy, result.best_epoch, result.epoch_time_s) == (0.5, 7, 0.25)
    assert result.metric == "rocauc"
    assert repr(result) == f"RunResult(test rocauc 0.5000, validation nan, best epoch 7, {tmp_path})"
    assert math.isnan(result.val_accuracy)  # no validation vertices: null in the file
    assert result.parameters["decoder.bias"].tolist() == [1.0, 1.0] and result.run_dir == tmp_path
