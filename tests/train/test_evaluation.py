"""Scores on the masks from logits put together chunk by chunk."""

import math
from itertools import pairwise

import pytest
import torch
from runtime.cases import make_config, make_trainer
from support.graphs import tiny_graph

from gnnpar.config.schema import TrainConfig
from gnnpar.train.metrics import score


def scores_and_logits(trainer):
    trainer.train_step()
    return trainer.evaluate(), trainer.evaluator.logits(trainer.planner.exact)


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


def test_evaluation_needs_two_buffers_a_width_whatever_the_depth():
    trainer = make_trainer(make_config({"num_layers": 9}))
    trainer.train_step()
    stage = trainer.executor.stages[0, 0]
    seen = []
    evaluate = stage.evaluate
    stage.evaluate = lambda slot, payloads, reads, over: (
        seen.append(over) or evaluate(slot, payloads, reads, over)
    )
    trainer.evaluate()
    (over,) = seen
    assert len({id(a.cut) for a in over}) == 2
    assert all(one.cut is not two.cut for one, two in pairwise(over))
    assert all(a.cut is not b.cut for a, b in zip(over, stage.aggregations, strict=True))
