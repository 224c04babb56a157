"""One rank's steps: order, loss, clipping, learning rate, failure; the exact evaluation between them."""

import math

import pytest
import torch
from runtime.cases import make_config, make_trainer
from support.graphs import tiny_graph

from gnnpar.batch import chunk_order
from gnnpar.config.schema import BatchConfig, OptimizerConfig, TrainConfig
from gnnpar.errors import RunError


def total_norm(gradients):
    return math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))


def test_chunks_run_in_the_order_of_seed_and_step():
    trainer = make_trainer(make_config(seed=5))
    for step in range(4):
        trainer.train_step()
        assert trainer.step_order == chunk_order(4, 5, step)
    assert trainer.step == 4
    trainer = make_trainer(make_config(batch=BatchConfig(num_chunks=4, shuffle=False)))
    trainer.train_step()
    assert trainer.step_order == (0, 1, 2, 3)


def test_steps_repeat_bit_by_bit_and_change_with_the_seed():
    def losses(seed):
        trainer = make_trainer(make_config(seed=seed))
        return [trainer.train_step().loss for _ in range(4)]

    assert losses(1) == losses(1) != losses(2)


def test_a_step_reports_age_and_share_of_its_histories():
    trainer = make_trainer(make_config(history={"mode": "snapshot", "period": 2}))
    steps = [trainer.train_step() for _ in range(5)]
    assert [step.history_age for step in steps] == [0, 1, 2, 1, 2]
    assert steps[0].history_share == 0.0
    assert all(0 < step.history_share < 1 for step in steps[1:])
    assert all(step.seconds > 0 for step in steps)


def test_the_loss_falls_and_parameters_move():
    adam = OptimizerConfig(name="adam")
    trainer = make_trainer(make_config({"dropout": 0.0}, optimizer=adam, train=TrainConfig(lr=0.05)))
    before = {name: value.clone() for name, value in trainer.parameters().items()}
    losses = [trainer.train_step().loss for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
    assert all(not torch.equal(value, before[name]) for name, value in trainer.parameters().items())


def test_parameters_and_gradients_have_global_names():
    trainer = make_trainer(make_config())
    trainer.train_step()
    names = set(trainer.parameters())
    assert names == set(trainer.gradients())
    assert {name.split(".")[0] for name in names} == {"encoder", "layers", "decoder"}
    assert {name for name in names if name.startswith("layers")} == {f"layers.{i}.weight" for i in range(3)}
    assert trainer.num_parameters == sum(p.numel() for p in trainer.parameters().values())
    assert not any(p.requires_grad for p in trainer.parameters().values())


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_gradients_are_clipped_to_their_joint_norm(clip):
    free = make_trainer(make_config())
    clipped = make_trainer(make_config(train=TrainConfig(lr=0.1, grad_clip=clip)))
    assert free.train_step().loss == clipped.train_step().loss
    norm = total_norm(free.gradients())
    assert 1e-3 < norm < 1e3
    for name, g in free.gradients().items():
        wanted = g * (clip / norm) if norm > clip else g
        torch.testing.assert_close(clipped.gradients()[name], wanted, rtol=1e-12, atol=0)


def test_the_learning_rate_follows_its_schedule():
    train = TrainConfig(lr=0.1, num_epochs=4, lr_schedule="linear", weight_decay=0.0)
    trainer = make_trainer(make_config(train=train))
    for lr in (0.1, 0.075, 0.05, 0.025):
        before = {name: value.clone() for name, value in trainer.parameters().items()}
        trainer.train_step()
        for name, g in trainer.gradients().items():
            moved = before[name] - trainer.parameters()[name]
            torch.testing.assert_close(moved, lr * g, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_and_says_what_to_try(value):
    trainer = make_trainer(make_config())
    trainer.train_step()
    with torch.no_grad():
        trainer.executor.stages[0, 0].layers[-1][1].linear.bias[0] = value
    with pytest.raises(RunError, match=r"the loss is nan at step 1: lower train\.lr"):
        trainer.train_step()


def test_a_diverging_run_is_noticed():
    trainer = make_trainer(make_config(train=TrainConfig(lr=1e30)))
    trainer.train_step()
    with pytest.raises(RunError, match=r"the loss is (nan|inf) at step [12]"):
        trainer.train_step(), trainer.train_step()


@pytest.mark.parametrize("layer", ["gcnii", "sage", "gat"])
@pytest.mark.parametrize("mode", ["latest", "snapshot", "drop"])
def test_evaluation_is_the_plain_forward_pass(layer, mode):
    trainer = make_trainer(make_config({"name": layer, "norm": "layer"}, history={"mode": mode}))
    for _ in range(3):
        trainer.train_step()
    model = plain_copy(trainer)
    with torch.no_grad():
        wanted = model(trainer.chunked.graph)
    found = trainer.evaluator.logits(trainer.feed.whole)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


def plain_copy(trainer):
    from gnnpar.train.job import make_model

    model = make_model(trainer.config, trainer.chunked.graph).double()
    model.load_state_dict(trainer.parameters(), strict=False)
    return model.eval()


@pytest.mark.parametrize("layer", ["gcnii", "gat"])
@pytest.mark.parametrize("mode", ["latest", "snapshot"])
def test_evaluating_between_steps_changes_none_of_them(layer, mode):
    config = make_config({"name": layer}, history={"mode": mode})
    quiet, watched = make_trainer(config), make_trainer(config)
    for _ in range(6):
        assert quiet.train_step().loss == watched.train_step().loss
        watched.evaluate()


def test_a_model_with_batch_normalisation_trains_and_evaluates():
    config = make_config({"name": "gcn", "norm": "batch", "dropout": 0.0}, chunks=4)
    trainer = make_trainer(config, graph=tiny_graph())
    assert len(trainer.feed.whole.slots[0]) == 1
    for _ in range(5):
        assert math.isfinite(trainer.train_step().loss)
    buffers = [b for _, layer in trainer.executor.stages[0, 0].layers for b in layer.buffers() if b.dim()]
    assert buffers and any(bool((b != 0).any()) for b in buffers)
    assert 0 <= trainer.evaluate().val <= 1
