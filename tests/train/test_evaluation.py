"""Scores on the masks from logits put together chunk by chunk."""

import math
from itertools import pairwise

import pytest
import torch
from runtime.cases import make_config, make_trainer
from support.graphs import tiny_graph
from torch import nn

from gnnpar.config.schema import TrainConfig
from gnnpar.model import Branch, Layer, LayerGraph, Pull
from gnnpar.train.job import make_model
from gnnpar.train.metrics import score


def scores_and_logits(trainer):
    trainer.train_step()
    return trainer.evaluate(), trainer.evaluator.logits(trainer.feed.whole)


@pytest.mark.parametrize("multi_label", [False, True])
def test_scores_are_those_of_the_logits_on_each_mask(multi_label):
    metric = "rocauc" if multi_label else "accuracy"
    config = make_config(train=TrainConfig(metric=metric, lr=0.1))
    trainer = make_trainer(config, graph=tiny_graph(multi_label=multi_label))
    scores, logits = scores_and_logits(trainer)
    graph = trainer.chunked.graph
    assert logits.shape == (graph.num_nodes, 3) and not logits.requires_grad
    for name in ("train", "val", "test"):
        wanted = score(logits, graph.y, getattr(graph, f"{name}_mask"), metric)
        assert getattr(scores, name) == wanted and 0 <= wanted <= 1
    assert scores.seconds > 0


def test_accuracy_counts_labelled_vertices_only():
    trainer = make_trainer(make_config())
    scores, logits = scores_and_logits(trainer)
    graph = trainer.chunked.graph
    right = [
        int(logits[v].argmax()) == int(graph.y[v])
        for v in range(graph.num_nodes)
        if graph.test_mask[v] and graph.y[v] >= 0
    ]
    assert scores.test == sum(right) / len(right)


def test_an_empty_mask_has_no_score():
    graph = tiny_graph()
    trainer = make_trainer(make_config(), graph=graph.replace(val_mask=torch.zeros_like(graph.val_mask)))
    scores, _ = scores_and_logits(trainer)
    assert math.isnan(scores.val) and not math.isnan(scores.test)


def aggregations_of_an_evaluation(trainer):
    """Those that an evaluation ran, and the stage's own."""
    stage = trainer.executor.stages[0, 0]
    seen = []
    evaluate = stage.evaluate
    stage.evaluate = lambda slot, payloads, reads, over: (
        seen.append(over) or evaluate(slot, payloads, reads, over)
    )
    trainer.evaluate()
    (over,) = seen
    assert all(a.cut is not b.cut for a, b in zip(over, stage.aggregations, strict=True))
    return over, stage.aggregations


def test_evaluation_needs_no_memory_for_cuts_where_buffers_lie_idle():
    trainer = make_trainer(make_config({"num_layers": 9}))
    trainer.train_step()
    over, own = aggregations_of_an_evaluation(trainer)
    idle = {a.z.data_ptr() for a in own}
    assert {a.cut.buffer.data_ptr() for a in over} == idle
    for one, two in pairwise(over):
        assert two.cut.buffer.data_ptr() not in (one.cut.buffer.data_ptr(), one.z.data_ptr())
        assert two.cut.buffer.data_ptr() != two.z.data_ptr()


@pytest.mark.parametrize("model", [{"num_layers": 2}, {"name": "gat", "num_layers": 9}])
def test_evaluation_needs_two_buffers_whatever_the_depth_where_none_lie_idle(model):
    trainer = make_trainer(make_config(model))
    trainer.train_step()
    over, _ = aggregations_of_an_evaluation(trainer)
    assert len({id(a.cut) for a in over}) == 2
    assert all(one.cut is not two.cut for one, two in pairwise(over))


@pytest.mark.parametrize("name", ["gcn", "gcnii", "sage", "gat"])
@pytest.mark.parametrize("num_layers", [1, 2, 3, 5])
def test_logits_are_the_models_and_the_next_steps_do_not_see_the_evaluation(name, num_layers):
    model = {"name": name, "num_layers": num_layers}
    train = TrainConfig(lr=0.05)
    plain, evaluated = (make_trainer(make_config(model, dtype="float64", train=train)) for _ in range(2))
    for _ in range(3):
        plain.train_step()
        evaluated.train_step()
        logits = evaluated.evaluator.logits(evaluated.feed.whole)
        whole = make_model_of(evaluated)
        torch.testing.assert_close(logits, whole, rtol=1e-10, atol=1e-10)
    for name, value in plain.parameters().items():
        assert torch.equal(value, evaluated.parameters()[name])


def make_model_of(trainer):
    """Logits of a plain full-batch model with the trainer's parameters."""
    config, graph = trainer.config, trainer.chunked.graph
    model = make_model(config, graph).to(torch.float64).eval()
    model.load_state_dict(trainer.state())
    with torch.no_grad():
        return model(graph)


class Mean(Layer):
    """Hands on what it aggregates, the very rows."""

    operator = Pull("mean")


def test_rows_that_a_branch_hands_on_outlast_the_buffer_they_lie_in():
    branches = {f"hop{k}": Branch([Mean() for _ in range(k)]) for k in (1, 3)}
    branches["all"] = Branch([], inputs=tuple(branches), join="cat")
    graph = tiny_graph()
    model = LayerGraph(branches, encoder=nn.Linear(7, 6), decoder=nn.Linear(12, 3)).double()
    trainer = make_trainer(make_config({"name": "custom", "num_layers": 5}), graph=graph, model=model)
    for _ in range(2):
        trainer.train_step()
        logits = trainer.evaluator.logits(trainer.feed.whole)
        with torch.no_grad():
            wanted = model.eval()(trainer.chunked.graph)
        torch.testing.assert_close(logits, wanted, rtol=1e-10, atol=1e-10)
