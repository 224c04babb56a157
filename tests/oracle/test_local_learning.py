"""Local learning in real processes: equal to stages trained one after the other, whoever runs ahead."""

import time
from functools import cache
from itertools import accumulate, pairwise

import pytest
import torch
from oracle.test_unflushed import clusters
from support.live import config_of, copied, differences
from torch.nn import functional as F

from gnnpar.config.schema import BatchConfig, ModelConfig, OptimizerConfig, WeightsConfig
from gnnpar.model.rows import Rows
from gnnpar.model.whole import WholeGraph, apply_layer
from gnnpar.runtime.local import LocalHead
from gnnpar.train.job import make_model
from gnnpar.train.optim import build_optimizer
from gnnpar.train.trainer import Trainer

EPOCHS, CHUNKS = 2, 10
CASES = {
    # stages, updates an epoch, head, rank that is slow
    (2, 10, "linear", None): "adam",
    (2, 10, "linear", 0): "adam",
    (2, 10, "linear", 1): "adam",
    (4, 5, "mlp", None): "sgd",
    (4, 5, "mlp", 3): "sgd",
}


def config_for(case):
    stages, updates, head, _ = case
    return config_of(
        "local_learning",
        stages,
        CHUNKS,
        batch=BatchConfig(num_chunks=CHUNKS, kind="clusters", steps_per_epoch=updates),
        model=ModelConfig(name="gcnii", num_layers=8, hidden=8, dropout=0.3),
        optimizer=OptimizerConfig(name=CASES[case]),
        weights=WeightsConfig(policy="local", head=head),
    )


def run(context, cases):
    """For the pool: of every case the losses, orders, and this rank's last parameters."""
    found = {}
    for case in cases:
        config, chunked = config_for(case), clusters(CHUNKS)
        trainer = Trainer(make_model(config, chunked.graph), chunked, config, context)
        if case[3] == context.rank:
            (stage,) = trainer.executor.stages.values()
            forward = stage.forward
            stage.forward = lambda *args, forward=forward, **keys: (time.sleep(0.03), forward(*args, **keys))[
                1
            ]
        steps = [(trainer.train_epoch().loss, trainer.step_order) for _ in range(EPOCHS)]
        sent = trainer.recorder.bytes_by_kind().get("stage", 0)
        found[case] = steps, copied(trainer.parameters()), trainer.split, sent
        context.barrier("before the next case")
    return found


def one_after_the_other(case, orders, split):
    """The same in one process: each stage trains on what the one before made, before that one updated."""
    config, chunked = config_for(case), clusters(CHUNKS)
    graph, size = chunked.isolated.graph, CHUNKS // case[1]
    model = make_model(config, graph).double().train()
    layers, names = model.all_layers(), dict(model.named_parameters())
    aggregate = WholeGraph(graph)
    stages = []
    for number, (first, last) in enumerate(pairwise((0, *accumulate(split)))):
        own = {id(p) for layer in layers[first:last] for p in layer.parameters()}
        named = {name: p for name, p in names.items() if id(p) in own}
        head = None
        if last < len(layers):
            about = (8, graph.num_classes, case[2] == "mlp", None, config.seed + number)
            head = LocalHead(*about, torch.float64, torch.device("cpu"))
            named |= {f"heads.{number}.{name}": p for name, p in head.named_parameters()}
        optimizer = build_optimizer(named, config.optimizer, config.train)
        stages.append((range(first, last), named, head, optimizer))
    losses = []
    for epoch, order in enumerate(orders):
        shares = []
        for start in range(0, CHUNKS, size):
            chunks = [chunked.chunks[c] for c in order[start : start + size]]
            together = chunked.num_labels(chunks) or 1
            inputs = [(graph.x, {}) for _ in chunks]
            for indices, _, head, optimizer in stages:
                optimizer.zero_grad()
                outputs = []
                for chunk, (h, carries) in zip(chunks, inputs, strict=True):
                    for index in indices:
                        rows = Rows(graph.node_ids, config.seed, epoch, index, True, False)
                        h, written = apply_layer(layers[index], h, carries, rows, aggregate)
                        carries = carries | written
                        if index in model.keeps:
                            carries = carries | {model.keeps[index]: h}
                    inside = torch.zeros(graph.num_nodes, dtype=torch.bool)
                    inside[chunk.start : chunk.stop] = True
                    wanted = inside & graph.train_mask & (graph.y >= 0)
                    logits = h[wanted]
                    for number, (weight, bias) in enumerate(head.maps if head else ()):
                        logits = F.linear(F.relu(logits) if number else logits, weight, bias)
                    loss = F.cross_entropy(logits, graph.y[wanted], reduction="sum") / together
                    loss.backward()
                    if head is None:
                        shares.append(loss.item() * together)
                    outputs.append((h.detach(), {name: c.detach() for name, c in carries.items()}))
                optimizer.step()
                inputs = outputs
        losses.append(sum(shares) / chunked.num_labels(chunked.chunks))
    return losses, {name: p.detach() for _, named, _, _ in stages for name, p in named.items()}


@pytest.fixture(scope="module")
def live(pool):
    @cache
    def all_of(stages):
        return pool.run(run, stages, [case for case in CASES if case[0] == stages], timeout_s=120)

    return lambda case: [rank[case] for rank in all_of(case[0])]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_local_learning_equals_stages_trained_one_after_the_other(live, case):
    ranks = live(case)
    steps = ranks[0][0]
    losses, wanted = one_after_the_other(case, [order for _, order in steps], ranks[0][2])
    for (loss, _), other in zip(steps, losses, strict=True):
        assert abs(loss - other) <= 1e-10 * abs(other)
    held = {name: value for rank in ranks for name, value in rank[1].items()}
    assert held.keys() == wanted.keys()
    assert differences(held, wanted) <= 1e-10


def test_nothing_depends_on_who_runs_ahead(live):
    for stages in (2, 4):
        cases = [case for case in CASES if case[0] == stages]
        for one, *others in zip(*(live(case) for case in cases), strict=True):
            for other in others:
                assert one[0] == other[0]
                assert all(torch.equal(value, other[1][name]) for name, value in one[1].items())


def test_no_gradient_is_sent(live):
    """Two tensors, h and h0, of eight columns cross each boundary forward; nothing comes back."""
    for case in CASES:
        sent = sum(rank[3] for rank in live(case))
        assert sent == (case[0] - 1) * clusters(CHUNKS).graph.num_nodes * 2 * 8 * 8 * EPOCHS
