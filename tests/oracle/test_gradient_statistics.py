"""Doubling cross-chunk gradients is unbiased over one hop, and over one hop only.

With exact histories an edge between chunks carries its gradient in exactly half of the orders, doubled. So
the mean over all orders of four chunks is the exact gradient for one linear aggregation. A longer path
survives less often (k chunks: 1/k!, there and back: never), so deep models get no such promise.
"""

from itertools import permutations

import pytest
import torch
from oracle.dense_reference import DenseReference
from oracle.models import history
from support.graphs import chunk_assignment, tiny_graph
from torch import nn

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, OptimizerConfig, RunConfig, TrainConfig
from gnnpar.model import GCN, LayerStack
from gnnpar.train.trainer import Trainer

ORDERS = list(permutations(range(4)))
STILL = 1e-300
"""A learning rate that changes no parameter, so that the histories are exact."""


def linear_gcn(graph, hops):
    torch.manual_seed(0)
    layers = [GCN(6, 6, activation=None) for _ in range(hops)]
    model = LayerStack(nn.Linear(graph.num_features, 6), layers, nn.Linear(6, graph.num_classes))
    return model.double()


def exact_gradient(model, graph):
    used = graph.train_mask & (graph.y >= 0)
    loss = nn.functional.cross_entropy(model(graph)[used], graph.y[used])
    names, params = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, params), strict=True))


def mean_over_orders(hops, gamma):
    graph = tiny_graph()
    model = linear_gcn(graph, hops)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    keys = history("latest", gamma=gamma)
    reference = DenseReference(model, graph, chunk_assignment(graph, 4), keys, optimizer)
    reference.step(range(4))
    steps = [reference.step(order).gradients for order in ORDERS]
    mean = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    return mean, exact_gradient(model, graph)


def relative_error(found, wanted):
    largest = max(float(g.abs().max()) for g in wanted.values())
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted) / largest


def test_doubled_gradients_average_to_the_exact_one_over_one_hop():
    assert relative_error(*mean_over_orders(1, gamma=2.0)) < 1e-13


@pytest.mark.parametrize(("hops", "gamma"), [(1, 1.0), (1, 0.0), (3, 2.0)])
def test_they_do_not_without_doubling_nor_over_more_hops(hops, gamma):
    assert relative_error(*mean_over_orders(hops, gamma)) > 1e-3


def gradients_by_order(context, chunked, model, num_steps):
    config = RunConfig(
        dtype="float64",
        batch=BatchConfig(num_chunks=4),
        history=history("latest", gamma=2.0),
        train=TrainConfig(lr=STILL, weight_decay=0.0),
        optimizer=OptimizerConfig(name="sgd"),
    )
    trainer = Trainer(model, chunked, config, context)
    found = {}
    for step in range(num_steps):
        trainer.train_step()
        if step > 0:  # after the warm-up step
            found[tuple(trainer.step_order)] = {name: g.clone() for name, g in trainer.gradients().items()}
    return found


def test_the_trainer_s_doubled_gradients_average_to_the_exact_one(pool):
    """As many steps as it takes its shuffle to draw all 24 orders; the seed is fixed."""
    graph = tiny_graph()
    model = linear_gcn(graph, 1)
    chunk_of = chunk_assignment(graph, 4)
    offsets = (0, *torch.bincount(chunk_of).cumsum(0).tolist())
    chunked = ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)
    (found,) = pool.run(gradients_by_order, 1, chunked, model, 300)
    assert sorted(found) == ORDERS
    mean = {name: sum(step[name] for step in found.values()) / len(ORDERS) for name in found[ORDERS[0]]}
    assert relative_error(mean, exact_gradient(model, graph)) < 1e-13
