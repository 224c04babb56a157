"""The presets: one a schedule family, under its name, and those of whole systems."""

import math
from pathlib import Path

import pytest

from gnnpar.config import compose, group_choices
from gnnpar.config.schema import ScheduleConfig
from gnnpar.data import load
from gnnpar.dist import Context, Mesh
from gnnpar.schedule.families import FAMILIES
from gnnpar.train.job import make_model
from gnnpar.train.order import build_schedule
from gnnpar.train.run import cut, prepare, run
from gnnpar.train.trainer import Trainer

SAMPLED = {"cluster_gcn", "data_parallel", "fastgcn", "graphsage", "graphsaint", "ladies", "shadow", "vrgcn"}
WHOLE = {"full_batch", "gnnpipe", "graph_parallel", "gnnpipe_hybrid", "feature_parallel", "sar"}
WHOLE |= {"gas", "rest", "lmc", "gpipe_naive"}
WHOLE |= {"pipegcn", "bns_gcn", "adaqp", "sancus"} | SAMPLED
UNFLUSHED = {
    "pipedream": "stash",
    "pipedream_vertical": "vertical",
    "pipedream_2bw": "double",
    "spectrain": "spectrain",
    "xpipe": "xpipe",
    "pipeoptim": "pipeoptim",
    "pipemare": "pipemare",
    "ppll": "local",
}
"""Preset → its policy for weights. Their two families have no presets of their own names."""
OF_FAMILIES = [name for name, family in FAMILIES.items() if "updates" not in family.options]

# ranks, stages, replicas, in two halves (I and W)
TABLE = {
    "feature_parallel": (1, 1, 1, False),
    **dict.fromkeys(SAMPLED, (1, 1, 1, False)),
    "full_batch": (1, 1, 1, False),
    "gnnpipe": (2, 2, 1, False),
    "gnnpipe_hybrid": (2, 2, 1, False),
    "graph_parallel": (1, 1, 1, False),
    "gas": (1, 1, 1, False),
    "rest": (1, 1, 1, False),
    "lmc": (1, 1, 1, False),
    "sar": (1, 1, 1, False),
    "pipegcn": (1, 1, 1, False),
    "bns_gcn": (1, 1, 1, False),
    "adaqp": (1, 1, 1, False),
    "sancus": (1, 1, 1, False),
    "bapipe_1f1b_as": (2, 2, 1, False),
    "bapipe_1f1b_sno": (2, 2, 1, False),
    "bapipe_1f1b_so": (2, 2, 1, False),
    "bapipe_fbp_as": (2, 2, 1, False),
    "bitpipe": (4, 8, 2, False),
    "chimera": (4, 4, 2, False),
    "dapple_pa": (2, 2, 1, False),
    "dapple_pb": (2, 2, 1, False),
    "dualpipe": (4, 4, 2, True),
    "dualpipe_v": (2, 4, 1, True),
    "gems": (4, 4, 2, False),
    "gpipe": (2, 2, 1, False),
    "gpipe_2bp": (2, 2, 1, True),
    "gpipe_naive": (2, 2, 1, False),
    "graphpipe": (2, 2, 1, False),
    "hanayo": (2, 4, 1, False),
    "interleaved": (2, 4, 1, False),
    "looped_bfs": (2, 4, 1, False),
    "naive_2bp": (2, 2, 1, True),
    "one_f_one_b": (2, 2, 1, False),
    "one_f_one_b_2bp": (2, 2, 1, True),
    "zb_h1": (2, 2, 1, True),
    "zb_h2": (4, 4, 1, True),
    "zb_v": (2, 4, 1, True),
    **dict.fromkeys(UNFLUSHED, (2, 2, 1, False)),
}


def test_every_family_has_a_preset_and_every_preset_a_line_here():
    assert set(group_choices()["system"]) == {*OF_FAMILIES, *WHOLE, *UNFLUSHED} == set(TABLE)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_preset_composes_and_builds_its_schedule(name):
    config = compose([f"system={name}"])
    schedule = build_schedule(config)
    halves = any(part.kind.name == "W" for rank in schedule.ranks for item in rank for part in item.parts)
    found = (schedule.num_ranks, schedule.num_stages, schedule.num_replicas, halves)
    assert found == TABLE[name]
    assert config.parallel.stages == schedule.num_ranks


@pytest.mark.parametrize(("name", "policy"), UNFLUSHED.items())
def test_a_preset_without_a_flush_updates_amid_passes(name, policy):
    config = compose([f"system={name}"])
    assert (config.system, config.weights.policy) == (name, policy)
    schedule = build_schedule(config)
    assert schedule.num_updates == config.batch.steps_per_epoch > 1
    assert schedule.detached is (name == "ppll")


@pytest.mark.parametrize("name", OF_FAMILIES)
def test_a_family_s_preset_runs_it_on_clusters(name):
    config = compose([f"system={name}"])
    assert (config.system, config.batch.kind, config.batch.num_chunks) == (name, "clusters", 8)
    assert config.schedule == ScheduleConfig(name=name)
    assert build_schedule(config) == FAMILIES[name](config.parallel.stages, 8)


def test_chunks_by_index_are_ranges_of_equally_many_vertices():
    config = compose(["system=gpipe_naive", "dataset=karate", "batch.num_chunks=3"])
    partition = cut(config, load(config.dataset))
    assert partition.order.tolist() == list(range(34))
    assert partition.offsets.tolist() == [0, 11, 23, 34]
    assert config.batch.kind == "clusters"


def test_layers_are_given_for_every_stage_of_every_rank():
    keys = ["system=zb_v", "model.num_layers=10", "parallel.layers_per_stage=[1,2,3,4]"]
    assert compose(keys).parallel.layers_per_stage == (1, 2, 3, 4)


def test_the_page_of_systems_has_a_row_for_each():
    page = Path(__file__).parents[2] / "docs" / "systems.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows if "gnnpar train system=" in row]
    assert sorted(names) == sorted(TABLE)
    for name, row in zip(names, rows, strict=False):
        ranks, stages, replicas, _ = TABLE[name]
        assert f"| {ranks} × {stages // ranks} | {replicas} |" in row, name
        assert row.endswith(f"`gnnpar train system={name}` |")


@pytest.mark.parametrize("name", ["zb_v", "chimera", "xpipe"])
def test_a_preset_trains(name, tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    keys = [f"system={name}", "dataset=karate", "parallel.stages=2", "batch.num_chunks=4"]
    keys += ["model.num_layers=4", "model.hidden=8", "train.num_epochs=4", "train.eval_every=2"]
    keys += ["trace.tensorboard=false", "run.dir=out", "launch.timeout_s=60"]
    result = run(compose(keys))
    stages = TABLE[name][1] if name == "zb_v" else 2
    assert len(result.summary["layers_per_stage"]) == stages
    assert sum(result.summary["layers_per_stage"]) == 4
    assert 0 <= result.test_accuracy <= 1
    assert result.summary["history_read_share"] == 0.0
    assert result.summary["bytes_per_epoch"]["stage"] > 0
    assert (result.summary["bytes_per_epoch"]["weight"] > 0) is (name == "chimera")
    assert {key.split(".")[0] for key in result.parameters} == {"encoder", "layers", "decoder"}


@pytest.mark.parametrize("name", ["gas", "rest", "lmc"])
def test_a_preset_of_several_steps_an_epoch_trains(name):
    config = compose([f"system={name}", "dataset=karate", "model.num_layers=3", "model.hidden=8"])
    graph = load(config.dataset)
    trainer = Trainer(make_model(config, graph), prepare(config, graph, None), config, Context.single())
    result = trainer.train_epoch()
    assert trainer.step == config.batch.steps_per_epoch == 4
    assert 0 < result.history_share < 1 and math.isfinite(result.loss)
    assert (
        result.history_age_max == {"gas": 3, "rest": 1, "lmc": 3}[name]
    )  # the histories are those of step 0
    assert 0 <= trainer.evaluate().test <= 1


PARALLEL = [("graph_parallel", 2), ("gnnpipe_hybrid", 4), ("sancus", 2), ("feature_parallel", 2), ("sar", 2)]


@pytest.mark.parametrize(("name", "size"), PARALLEL)
def test_a_preset_whose_ways_read_each_other_trains(name, size, tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    keys = [f"system={name}", "dataset=karate", "model.num_layers=4", "model.hidden=8"]
    keys += ["train.num_epochs=4", "train.eval_every=2", "trace.tensorboard=false", "run.dir=out"]
    config = compose([*keys, "launch.timeout_s=60"])
    assert Mesh.of(config).size == size
    summary = run(config).summary
    sent = summary["bytes_per_epoch"]
    assert sent["feature" if name == "feature_parallel" else "halo"] > 0 and sent["weight"] > 0
    assert (sent["stage"] > 0) is (summary["history_read_share"] > 0) is (name == "gnnpipe_hybrid")
    assert summary["history_age_max"] == (name == "gnnpipe_hybrid")
    # Steps 1, 2 and 3 after the warm-up read rows of step 0.
    assert (summary["halo_age_mean"], summary["halo_age_max"]) == ((2, 3) if name == "sancus" else (0, 0))


def test_mini_batches_on_two_replicas_train(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    keys = ["system=data_parallel", "dataset=karate", "batch.fanouts=[3,2,2]", "batch.size=2"]
    keys += ["model.hidden=8", "train.num_epochs=4", "train.eval_every=2", "trace.tensorboard=false"]
    config = compose([*keys, "run.dir=out", "launch.timeout_s=60"])
    assert (Mesh.of(config).size, config.model.name) == (2, "sage")
    summary = run(config).summary
    assert 0 <= summary["test_accuracy"] <= 1
    assert summary["bytes_per_epoch"]["weight"] > 0 and summary["bytes_per_epoch"]["stage"] == 0
