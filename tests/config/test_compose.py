"""Config groups and overrides to a checked configuration; every mistake in our words, all at once."""

import pytest

from gnnpar.config import compose, config_hash, from_yaml, group_choices, read_config, to_yaml
from gnnpar.config.schema import RunConfig
from gnnpar.errors import InputError


def faults_of(*overrides):
    with pytest.raises(InputError) as caught:
        compose(overrides)
    return caught.value.faults


def only_fault(*overrides):
    (fault,) = faults_of(*overrides)
    return fault


def test_defaults_are_the_run_of_make_train():
    config = compose()
    assert (config.dataset.name, config.model.name, config.system) == ("digits", "gcnii", "gnnpipe")
    assert (config.model.num_layers, config.model.hidden) == (32, 64)
    assert (config.parallel.stages, config.batch.num_chunks) == (2, 8)


def test_full_batch_is_one_stage_and_one_chunk():
    config = compose(["system=full_batch"])
    assert (config.system, config.parallel.stages, config.batch.num_chunks) == ("full_batch", 1, 1)


@pytest.mark.parametrize("system", group_choices()["system"])
def test_every_preset_carries_its_own_name(system):
    assert compose([f"system={system}"]).system == system


@pytest.mark.parametrize("model", group_choices()["model"])
def test_every_model_carries_its_own_name(model):
    assert compose([f"model={model}"]).model.name == model


def test_overrides_win_over_groups_wherever_they_stand():
    config = compose(["parallel.stages=4", "system=gnnpipe", "model.num_layers=64", "model=gcn"])
    assert (config.parallel.stages, config.model.num_layers, config.model.name) == (4, 64, "gcn")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.lr=1e-3", 1e-3),
        ("train.lr=1", 1.0),
        ("train.grad_clip=null", None),
        ("+train.lr=0.5", 0.5),
        ("train.lr=${train.weight_decay}", 5e-4),
    ],
)
def test_values_follow_the_override_grammar(override, expected):
    config = compose([override])
    key = override.partition("=")[0].rpartition(".")[2]
    value = getattr(config.train, key)
    assert value == expected
    assert type(value) is type(expected)


def test_lists_become_tuples():
    config = compose(["parallel.layers_per_stage=[10,22]", "optimizer.betas=[0.8, 0.9]"])
    assert config.parallel.layers_per_stage == (10, 22)
    assert config.optimizer.betas == (0.8, 0.9)


@pytest.mark.parametrize("path", ["/a b/c=(d),e.npz", "x,y", "C:\\data", "[odd", "2020"])
def test_paths_may_look_like_anything(path):
    assert compose(["dataset=npz", f"dataset.path={path}"]).dataset.path == path


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.num_epocs=3", ["train.num_epocs", "train.num_epochs?"]),
        ("trian.lr=3", ["trian.lr", "train.lr?"]),
        ("lr=3", ["did you mean train.lr?"]),
        ("stages=3", ["did you mean parallel.stages?"]),
        ("name=gcn", ["dataset.name or model.name or schedule.name or optimizer.name?"]),
        ("zebra=1", ["no such key", "docs/configuration.md"]),
        ("train.lr.x=1", ["train.lr?"]),
        ("modle=gcn", ["did you mean model?"]),
        ("model=gcnil", ["there is no model 'gcnil'", "gat, gcn, gcnii", "did you mean gcnii?"]),
        ("system=magic", ["choose one of", "full_batch", "gnnpipe_hybrid, gpipe"]),
        ("model", ["key=value"]),
        ("train.lr=-1", ["train.lr", "positive", "-1"]),
        ("train.lr=abc", ["a number", "'abc'"]),
        ("train.lr=nan", ["finite"]),
        ("train.lr=0.1,0.2", ["one value"]),
        ("train.lr=[0.1", ["cannot read the value"]),
        ("train.num_epochs=0", ["at least 1"]),
        ("train.num_epochs=2.5", ["an integer", "2.5"]),
        ("train.num_epochs=true", ["an integer"]),
        ("batch.shuffle=1", ["true or false"]),
        ("model.dropout=1.0", ["below 1"]),
        ("history.mode=lates", ["latest, snapshot, drop", "did you mean latest?"]),
        ("history.gamma=-0.5", ["history.gamma", "at least 0"]),
        ("seed=-1", ["seed", "at least 0"]),
        ("device=gpu", ["cpu or cuda"]),
        ("device=cuda:x", ["cpu or cuda"]),
        ("dtype=float16", ["float32, float64"]),
        ("optimizer.betas=[0.9]", ["2 values, got 1"]),
        ("parallel.layers_per_stage=3", ["must be a list"]),
        ("parallel.stages=null", ["an integer"]),
        ("train=3", ["train", "section", "train.num_epochs"]),
        ("train.lr=${nowhere}", ["nowhere"]),
    ],
)
def test_each_mistake_is_one_fault_with_its_cure(override, parts):
    fault = only_fault(override)
    for part in parts:
        assert part in fault


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["parallel.stages=40"], ["parallel.stages: 40", "model.num_layers=32"]),
        (["parallel.layers_per_stage=[1,1,30]"], ["3 entries", "parallel.stages=2"]),
        (["system=zb_v", "parallel.layers_per_stage=[1,1,30]"], ["3 entries", "parallel.stages=2"]),
        (["parallel.layers_per_stage=[1,1]"], ["sums to 2", "model.num_layers=32"]),
        (["model=gat", "model.heads=5"], ["model.heads", "model.hidden=64"]),
        (["optimizer.momentum=0.9"], ["only sgd"]),
        (["partition.cost_vertex=0", "partition.cost_edge=0"], ["both 0"]),
        (["run.overwrite=true"], ["run.dir"]),
    ],
)
def test_keys_that_do_not_fit_together(overrides, parts):
    fault = only_fault(*overrides)
    for part in parts:
        assert part in fault


def test_all_faults_come_at_once_in_the_order_given():
    faults = faults_of("model=gcnil", "zebra=1", "train.lr=-1", "parallel.stages=99", "seed=x")
    assert [fault.partition(":")[0] for fault in faults] == [
        "model",
        "zebra",
        "seed",
        "train.lr",
        "parallel.stages",
    ]


def test_a_rule_is_not_blamed_on_a_value_that_is_already_faulty():
    assert [fault.partition(":")[0] for fault in faults_of("parallel.stages=99", "model.num_layers=x")] == [
        "model.num_layers"
    ]


def test_yaml_round_trip_is_exact():
    config = compose(
        ["train.lr=1e-5", "optimizer.eps=1e-30", "parallel.layers_per_stage=[30,2]", "run.dir=é/ü"]
    )
    assert from_yaml(to_yaml(config)) == config


def test_yaml_takes_numbers_written_like_1e_minus_3():
    assert from_yaml("train: {lr: 1e-3}").train.lr == 1e-3


@pytest.mark.parametrize("text", ["{", "3", "- a"])
def test_yaml_that_is_no_configuration(text):
    with pytest.raises(InputError):
        from_yaml(text)


def test_reading_a_file_names_it(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("train: {lr: -1}")
    with pytest.raises(InputError, match=r"c\.yaml: train\.lr"):
        read_config(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path / "none.yaml")


def test_hash_depends_on_what_changes_results_only():
    config = compose()
    assert config_hash(config) == config_hash(compose(["run.dir=elsewhere"]))
    assert config_hash(config) != config_hash(compose(["seed=1"]))
    assert len(config_hash(config)) == 8


def test_defaults_of_the_schema_are_a_valid_run():
    assert from_yaml("{}") == RunConfig()


def test_broken_config_files_are_reported(tmp_path):
    (tmp_path / "config.yaml").write_text("defaults: [{model: absent}]\n")
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="absent"):
        compose(configs=tmp_path)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["batch.joined=3"], "batch.joined: 3 chunks a micro-batch do not divide batch.num_chunks=8"),
        (["batch.steps_per_epoch=3"], "batch.steps_per_epoch: 3 steps cannot share 8 micro-batches"),
        (["batch.joined=4", "batch.steps_per_epoch=8"], "cannot share 2 micro-batches"),
        (["batch.joined=2", "batch.kind=clusters"], "use batch.kind=chunks, with history.mode=drop"),
        (["batch.steps_per_epoch=2", "history.mode=snapshot"], "batch.steps_per_epoch: a snapshot is of one"),
        (["history.warmup_steps=0", "history.mode=snapshot"], "history.warmup_steps: the first snapshot"),
        (["history.refresh_every=2", "history.mode=snapshot"], "use history.period"),
        (["history.refresh_every=2", "history.mode=drop"], "leave it out"),
        (["history.store=disk", "device=cuda"], "history.store: files are mapped into the CPU's memory"),
    ],
)
def test_steps_and_histories_that_do_not_fit(overrides, told):
    assert told in only_fault(*overrides)


def test_compensation_names_every_key_that_it_needs_otherwise():
    faults = faults_of("history.compensate=true", "history.gamma=2", "history.mode=drop")
    assert len(faults) == 4
    for needed in ("history.mode=latest", "history.gamma=1", "history.warmup_steps=0", "use more steps"):
        assert any(needed in fault and fault.startswith("history.compensate: ") for fault in faults), needed


@pytest.mark.parametrize("key", ["parallel.split=features", "memory.sequential=true"])
def test_ways_that_keep_their_own_rows_run_one_exact_micro_batch(key):
    name = key.partition("=")[0]
    fault = only_fault("system=graph_parallel", key, "batch.num_chunks=4")
    assert fault.startswith(f"{name}: ") and "set batch.num_chunks=1 (it is 4)" in fault
    assert "use batch.kind=chunks" in only_fault("system=graph_parallel", key, "batch.kind=clusters")
    compose(["system=graph_parallel", key])
    for of_history in ("history.refresh_every=2", "history.store=disk", "trace.history_error=true"):
        faults = faults_of("system=graph_parallel", key, of_history)
        assert any(f"{name} leaves no history" in fault for fault in faults)


def test_features_are_split_or_rows_fetched():
    assert "choose one" in only_fault("system=feature_parallel", "memory.sequential=true")
