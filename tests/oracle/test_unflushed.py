"""Pipelines that update without a flush, in real processes, against their replay in one process."""

from functools import cache
from itertools import accumulate, pairwise

import pytest
import torch
from support.graphs import tiny_graph
from support.live import config_of, copied, differences
from torch.nn import functional as F

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, ModelConfig, OptimizerConfig, TrainConfig, WeightsConfig
from gnnpar.runtime import DelayedOptimizer
from gnnpar.train.job import make_model
from gnnpar.train.optim import build_optimizer
from gnnpar.train.trainer import Trainer

EPOCHS, TOLERANCE = 2, 1e-10
MOMENTUM = OptimizerConfig(name="sgd", momentum=0.9)
ADAM = OptimizerConfig(name="adam")
ADAMW = OptimizerConfig(name="adamw")
CASES = {
    # policy, stages, micro-batches, updates an epoch, optimizer, further keys of weights
    ("live", 2, 10, 10, MOMENTUM): {},
    ("live", 4, 12, 6, ADAM): {},
    ("stash", 2, 10, 10, ADAM): {},
    ("stash", 4, 10, 10, MOMENTUM): {},
    ("vertical", 4, 10, 10, ADAMW): {},
    ("double", 4, 40, 10, MOMENTUM): {},
    ("double", 2, 20, 10, ADAM): {},
    ("spectrain", 2, 10, 10, MOMENTUM): {},
    ("spectrain", 4, 10, 10, MOMENTUM): {},
    ("xpipe", 4, 40, 10, ADAM): {},
    ("xpipe", 2, 20, 10, ADAMW): {},
    ("pipeoptim", 4, 10, 10, MOMENTUM): {},
    ("pipemare", 2, 10, 10, MOMENTUM): {"horizon": 15},
    ("pipemare", 4, 10, 10, ADAM): {"horizon": 15, "decay": 0.3},
}


def config_for(case):
    policy, stages, batches, updates, optimizer = case
    return config_of(
        "async_1f1b",
        stages,
        batches,
        batch=BatchConfig(num_chunks=batches, kind="clusters", steps_per_epoch=updates),
        model=ModelConfig(name="gcnii", num_layers=8, hidden=8, dropout=0.3),
        optimizer=optimizer,
        train=TrainConfig(lr=0.01, weight_decay=5e-4),
        weights=WeightsConfig(policy=policy, **CASES[case]),
    )


@cache
def clusters(number):
    """Of uneven sizes; their degrees and labels differ, too."""
    sizes = [3 + number % 3 for number in range(number)]
    graph = tiny_graph(num_nodes=sum(sizes))
    return ChunkedGraph(graph, (0, *accumulate(sizes))).to(torch.float64, torch.device("cpu"))


def run(context, cases):
    """For the pool: of every case the losses, orders, and this rank's last parameters."""
    found = {}
    for case in cases:
        chunked = clusters(case[2])
        trainer = Trainer(make_model(config_for(case), chunked.graph), chunked, config_for(case), context)
        steps = [(trainer.train_epoch().loss, trainer.step_order) for _ in range(EPOCHS)]
        alive = max(held.num_alive for held in trainer.executor.weights.values())
        found[case] = steps, copied(trainer.parameters()), trainer.split, alive
        context.barrier("before the next case")
    return found


def replay(case, orders, split):
    """Losses and parameters of the same run in one process: plain autograd and `DelayedOptimizer`."""
    config, chunked = config_for(case), clusters(case[2])
    graph = chunked.isolated.graph
    model = make_model(config, graph).double().train()
    layers, names = model.all_layers(), dict(model.named_parameters())
    stages = []
    for first, last in pairwise((0, *accumulate(split))):
        own = {id(p) for layer in layers[first:last] for p in layer.parameters()}
        stages.append({name: p for name, p in names.items() if id(p) in own})
    size = case[2] // case[3]
    losses = []
    delayed = None
    for epoch, order in enumerate(orders):
        known = delayed
        if known is None:
            delayed = DelayedOptimizer(
                stages,
                lambda named: build_optimizer(named, config.optimizer, config.train),
                config.weights.policy,
                micro_batches=size,
                decay=config.weights.decay,
                horizon=config.weights.horizon,
            )
        else:
            delayed.flush()
        shares = []
        for place, number in enumerate(order):
            update = order[place // size * size : (place // size + 1) * size]
            rows = torch.zeros(graph.num_nodes, dtype=torch.bool)
            chunk = chunked.chunks[number]
            rows[chunk.start : chunk.stop] = True
            wanted = rows & graph.train_mask & (graph.y >= 0)
            together = chunked.num_labels(chunked.chunks[c] for c in update) or 1
            with delayed.forward():
                logits = model(graph, seed=config.seed, step=epoch)
                loss = F.cross_entropy(logits[wanted], graph.y[wanted], reduction="sum") / together
            with delayed.backward():
                loss.backward()
            shares.append(loss.item() * together)
        losses.append(sum(shares) / chunked.num_labels(chunked.chunks))
    delayed.show_newest()
    return losses, {name: p.detach().clone() for name, p in names.items()}


@pytest.fixture(scope="module")
def live(pool):
    @cache
    def all_of(stages):
        return pool.run(run, stages, [case for case in CASES if case[1] == stages], timeout_s=150)

    return lambda case: [rank[case] for rank in all_of(case[1])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, (*case[:4], case[4].name))))
def test_a_pipeline_without_a_flush_equals_its_replay(live, case):
    ranks = live(case)
    steps = ranks[0][0]
    assert all(rank[0] == steps for rank in ranks)
    losses, wanted = replay(case, [order for _, order in steps], ranks[0][2])
    for (loss, _), other in zip(steps, losses, strict=True):
        assert abs(loss - other) <= TOLERANCE * abs(other)
    held = {name: value for rank in ranks for name, value in rank[1].items()}
    assert held.keys() == wanted.keys()
    assert differences(held, wanted) <= TOLERANCE


def test_policies_matter(live):
    """The same order and optimizer give other weights under every policy."""
    found = [
        {n: v for rank in live(case) for n, v in rank[1].items()} for case in CASES if case[1:3] == (4, 10)
    ]
    for number, one in enumerate(found):
        assert all(differences(one, other) > 1e-4 for other in found[number + 1 :])
