"""Epochs of several steps: which chunks each runs, what is reported of them, and where histories are kept."""

import pytest
import torch
from runtime.cases import make_config, make_trainer

from gnnpar.config.schema import BatchConfig, MemoryConfig, TraceConfig, TrainConfig
from gnnpar.errors import InputError
from gnnpar.train.trainer import StepResult

BATCH = {"num_chunks": 6, "joined": 2, "steps_per_epoch": 3}


def steps_of(trainer, count):
    return [(trainer.train_step(), trainer.step_order) for _ in range(count)]


def test_every_chunk_runs_once_an_epoch_and_warm_up_steps_are_epochs():
    trainer = make_trainer(make_config(batch=BatchConfig(**BATCH), history={"warmup_steps": 2}))
    orders = [order for _, order in steps_of(trainer, 8)]
    assert [len(order) for order in orders] == [6, 6, 2, 2, 2, 2, 2, 2]
    for epoch in (orders[0], orders[1], sum(orders[2:5], ()), sum(orders[5:8], ())):
        assert sorted(epoch) == list(range(6))
    assert sum(orders[2:5], ()) != sum(orders[5:8], ())
    trainer = make_trainer(make_config(batch=BatchConfig(**BATCH), history={"warmup_steps": 2}))
    assert [trainer.train_epoch().num_labels for _ in range(4)] == [
        trainer.chunked.num_labels([trainer.chunked.whole])
    ] * 4
    assert trainer.step == 8


def test_an_epoch_is_reported_as_means_over_labels_and_reads():
    steps = [
        StepResult(2.0, 1.5, 0.5, 0.1, 2, 3, 10),
        StepResult(1.0, 3.0, 0.25, 0.2, 7, 1, 40),
        StepResult(0.0, 0.0, 0.0, 0.3, 0, 0, 50),  # no labels, no histories
    ]
    epoch = StepResult.of_epoch(steps)
    assert epoch.loss == (2.0 * 3 + 1.0) / 4 and epoch.num_labels == 4
    assert epoch.history_share == (5 + 10) / 100 and epoch.num_reads == 100
    assert epoch.history_age == (1.5 * 5 + 3.0 * 10) / 15 and epoch.history_age_max == 7
    assert epoch.seconds == pytest.approx(0.6)
    assert StepResult.of_epoch(steps[:1]) is steps[0]


def test_the_learning_rate_changes_between_epochs_only():
    train = TrainConfig(num_epochs=5, lr=0.1, lr_schedule="linear")
    trainer = make_trainer(make_config(batch=BatchConfig(**BATCH), train=train))
    (update,) = trainer._updates
    rates = []
    for _ in range(1 + 2 * 3):
        rates.append(update.optimizer.param_groups[0]["lr"])
        trainer.train_step()
    assert rates == pytest.approx([0.1] + [0.08] * 3 + [0.06] * 3)


@pytest.mark.parametrize("model", ["gcnii", "gat"])
def test_histories_in_files_change_no_bit(tmp_path, model):
    def parameters(**history):
        keys = {"history": {"warmup_steps": 0, "refresh_every": 4} | history}
        trainer = make_trainer(make_config({"name": model}, batch=BatchConfig(**BATCH), **keys))
        steps_of(trainer, 6)
        assert 0 < trainer.evaluate().test < 1
        return trainer.parameters()

    disk = parameters(store="disk", dir=str(tmp_path))
    assert len(list(tmp_path.glob("*.rows"))) == 3
    for name, value in parameters().items():
        assert torch.equal(disk[name], value), name


def test_a_trainer_of_its_own_must_know_where_files_go():
    with pytest.raises(InputError, match=r"history\.dir: .*name a folder"):
        make_trainer(make_config(history={"store": "disk"}))


@pytest.mark.parametrize("packs", [False, True])
def test_z_holds_the_rows_of_a_steps_chunks_only(packs):
    batch = BatchConfig(**BATCH) if packs else BatchConfig(num_chunks=6)
    trainer = make_trainer(make_config(batch=batch))
    steps_of(trainer, 3)
    stage = trainer.executor.stages[0, 0]
    sizes = sorted(chunk.num_rows for chunk in trainer.chunked.chunks)
    rows = sum(sizes[-2:]) if packs else trainer.chunked.graph.num_nodes
    assert {one.z.shape[0] for one in stage.aggregations} == {rows}


@pytest.mark.parametrize("model", ["gcnii", "gat"])
def test_the_error_of_histories_is_what_age_makes_of_them(model):
    def error(steps, lr, dropout=0.3, **keys):
        config = make_config(
            {"name": model, "dropout": dropout},
            train=TrainConfig(lr=lr),
            trace=TraceConfig(history_error=True),
            **{"batch": BatchConfig(**BATCH)} | keys,
        )
        trainer = make_trainer(config)
        steps_of(trainer, steps)
        before = [one.cut.buffer.clone() for one in trainer.executor.stages[0, 0].aggregations]
        found = trainer.evaluate().history_error
        after = [one.cut.buffer for one in trainer.executor.stages[0, 0].aggregations]
        assert all(map(torch.equal, before, after))  # to measure them changes none
        return found

    assert error(1, lr=1e-300) < 1e-14  # exact, and the parameters stay: dropout is no error
    assert error(7, lr=1e-300, dropout=0.0) < 1e-14
    assert error(7, lr=1e-300) > 1e-3  # rows of masks that their neighbours no longer have
    assert error(7, lr=0.1) > error(1, lr=0.1) > 1e-6
    assert error(3, lr=0.1, batch=BatchConfig(num_chunks=4), memory=MemoryConfig(recompute=True)) > 1e-6


COMPENSATED = {"gamma": 1.0, "warmup_steps": 0, "compensate": True}


@pytest.mark.parametrize("model", ["gcnii", "gat"])
@pytest.mark.parametrize("history", [COMPENSATED, {"mode": "latest"}, {"mode": "snapshot", "period": 3}])
def test_a_run_goes_on_from_its_histories_bit_by_bit(tmp_path, model, history):
    batch = BatchConfig(num_chunks=6) if history.get("mode") == "snapshot" else BatchConfig(**BATCH)
    config = make_config({"name": model}, batch=batch, history=history)
    first, second = make_trainer(config), make_trainer(config)
    assert first.histories_state()["ran_in"].eq(0).all()
    steps_of(first, 5)
    torch.save(first.histories_state(), tmp_path / "histories.pt")
    for name, value in second.parameters().items():
        value.copy_(first.parameters()[name])
    second.step = first.step
    second.load_histories(torch.load(tmp_path / "histories.pt", weights_only=True))
    for _ in range(4):
        one, two = first.train_step(), second.train_step()
        assert (one.loss, one.history_age, one.history_share) == (
            two.loss,
            two.history_age,
            two.history_share,
        )
    for name, value in second.parameters().items():
        assert torch.equal(value, first.parameters()[name])


def test_histories_of_another_run_are_refused():
    trainer = make_trainer(make_config())
    steps_of(trainer, 2)
    state = trainer.histories_state()
    others = {
        "another graph": (make_config(chunks=5), "in 4 chunks, but"),
        "layers": (make_config({"num_layers": 2}), "the run has no such layer"),
        "copies": (make_config(history={"mode": "snapshot"}), "keep history"),
    }
    for config, told in others.values():
        with pytest.raises(InputError, match="histories of a checkpoint") as refused:
            make_trainer(config).load_histories(state)
        assert any(told in fault for fault in refused.value.faults)
