"""Training on mini-batches: with all neighbours of all seeds it is full-batch training, and on any stages and
replicas it is serial training on the same batches.
"""

from dataclasses import replace

import pytest
import torch
from oracle.models import LAYER_TYPES, build, model_config
from runtime.cases import chunked_graph
from support.graphs import tiny_graph
from torch.nn import functional as F

from gnnpar.config.schema import (
    BatchConfig,
    HistoryConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from gnnpar.dist import Context, Mesh
from gnnpar.errors import InputError
from gnnpar.train.sampled_feed import sampling_faults
from gnnpar.train.trainer import Trainer

TOLERANCE = 1e-10


SMALL = {"kind": "neighbour", "fanouts": (3, 2, 3, 2), "size": 4, "prefetch": 0, "num_chunks": 3}
ALL = {"fanouts": (40, 40, 40, 40), "size": 1000}


def config_of(
    layer="gcn",
    stages=1,
    replicas=1,
    ways=1,
    schedule="gpipe",
    split=None,
    recompute=False,
    norm=None,
    **batch,
):
    keys = {} if norm is None else {"norm": norm}
    split = split or ((1, 3) if stages == 2 else None)
    return RunConfig(
        seed=3,
        dtype="float64",
        model=model_config(layer, **keys),
        parallel=ParallelConfig(stages=stages, replicas=replicas, ways=ways, layers_per_stage=split),
        schedule=ScheduleConfig(name=schedule),
        batch=BatchConfig(**SMALL | batch),
        memory=MemoryConfig(recompute=recompute),
        optimizer=OptimizerConfig(name="sgd"),
        train=TrainConfig(lr=0.1, weight_decay=0.0),
    )


def graph_of(few=False, **keys):
    """A tiny graph; `few` leaves three labelled vertices to train on."""
    graph = tiny_graph(**keys)
    if not few:
        return graph
    labelled = (graph.train_mask & (graph.y >= 0)).nonzero()[:3, 0]
    mask = torch.zeros_like(graph.train_mask)
    mask[labelled] = True
    return graph.replace(train_mask=mask)


def trainer_of(config, context=None, **keys):
    chunked = chunked_graph(config.batch.num_chunks, graph_of(**keys))
    with torch.random.fork_rng():
        model = build(config.model.name, chunked.graph, norm=config.model.norm)
    return Trainer(model, chunked, config, context or Context.single())


def steps_of(context, cases, steps=2):
    """For the pool: of every case (configuration, keys of its graph), loss, gradients and parameters of every
    step, and what was evaluated at the end."""
    found = []
    for config, keys in cases:
        trainer = trainer_of(config, context, **keys)
        of_case = []
        for _ in range(steps):
            loss = trainer.train_step().loss
            gradients = {name: g.clone() for name, g in trainer.gradients().items()}
            state = {name: p.clone() for name, p in trainer.state().items()}
            of_case.append((loss, gradients, state))
        scores = trainer.evaluate()
        found.append((of_case, (scores.train, scores.val, scores.test)))
        context.barrier("before the next case")
    return found


def full_batch(config, steps=2, **keys):
    """The same of full-batch SGD by the model's own `forward`."""
    graph = chunked_graph(config.batch.num_chunks, graph_of(**keys)).graph
    model = build(config.model.name, graph)
    wanted = graph.train_mask & (graph.y >= 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.train.lr)
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graph, seed=config.seed, step=step)[wanted], graph.y[wanted])
        loss.backward()
        found.append((loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}))
        optimizer.step()
    return found


def assert_same(found, wanted):
    """Steps of a trainer (of some ranks' stages) against steps of the whole model."""
    for (loss, gradients, *_), (wanted_loss, wanted_gradients, *_) in zip(found, wanted, strict=True):
        assert loss == pytest.approx(wanted_loss, rel=TOLERANCE)
        largest = max(float(g.abs().max()) for g in wanted_gradients.values())
        for name, gradient in gradients.items():
            error = float((gradient - wanted_gradients[name]).abs().max())
            assert error <= TOLERANCE * largest, f"{name}: {error / largest}"


@pytest.mark.parametrize("layer", LAYER_TYPES)
def test_all_neighbours_and_all_seeds_are_full_batch(layer):
    config = config_of(layer, **ALL)
    ((found, _),) = steps_of(Context.single(), [(config, {})])
    assert_same(found, full_batch(config))


def compare(pool, size, cases, wanted):
    """Every case on `size` processes against `wanted(config, keys)`; copies of a stage agree to the bit."""
    assert all(Mesh.of(config).size == size for config, _ in cases)
    ranks = pool.run(steps_of, size, cases, timeout_s=150.0)
    for (config, keys), of_ranks in zip(cases, zip(*ranks, strict=True), strict=True):
        expected, scores = wanted(config, keys)
        held = {}
        for found, evaluated in of_ranks:
            assert_same(found, expected)
            assert scores is None or evaluated == scores
            for place, (_, _, state) in enumerate(found):
                for name, value in state.items():
                    assert torch.equal(held.setdefault((place, name), value), value), name
        assert {name for _, name in held} >= set(expected[0][1])


def exact(config, keys):
    return full_batch(config, **keys), None


EXACT = {
    2: [
        *((config_of(layer, stages=2, **ALL), {}) for layer in LAYER_TYPES),
        *((config_of(layer, replicas=2, **ALL), {"directed": False}) for layer in LAYER_TYPES),
        (config_of("gcnii", stages=2, recompute=True, per_step=3, **ALL), {}),
        (config_of("gcn", stages=2, schedule="zb_h1", per_step=3, **ALL), {"sparse": True}),
        (config_of("gcn", stages=2, kind="joined", joined=3), {"directed": False}),
    ],
    4: [
        *((config_of(layer, stages=2, replicas=2, per_step=2, **ALL), {}) for layer in ("gcnii", "gat")),
        *((config_of(layer, replicas=4, **ALL), {}) for layer in ("sage", "gen")),
        (config_of("gcnii", replicas=4, **ALL), {"few": True}),
        (config_of("gat", stages=2, replicas=2, **ALL, per_step=3), {"few": True}),
    ],
}


@pytest.mark.parametrize("size", EXACT)
def test_it_is_on_stages_and_replicas(pool, size):
    """Equal and unequal batches, and processes and micro-batches without any."""
    compare(pool, size, EXACT[size], exact)


def serial(config, keys):
    """The same mini-batches, one after the other in one process."""
    places = Mesh.of(config).num_chunks
    alone = replace(
        config,
        parallel=ParallelConfig(),
        schedule=ScheduleConfig(),
        batch=replace(config.batch, per_step=places),
        memory=MemoryConfig(),
    )
    ((found, scores),) = steps_of(Context.single(), [(alone, keys)])
    return found, scores


def test_sampled_batches_on_stages_and_replicas_are_the_same_batches_in_one_process(pool):
    cases = [
        (config_of("sage", stages=2, replicas=2, prefetch=2), {}),
        (config_of("gcnii", stages=2, replicas=2, per_step=2, labor=True), {}),
        (config_of("gat", stages=2, ways=(1, 3), per_step=2), {}),
        (config_of("gcn", stages=2, replicas=2, schedule="interleaved", split=(1,) * 4, per_step=2), {}),
        (config_of("gcn", stages=4, split=(1,) * 4, schedule="chimera", per_step=4), {}),
        (config_of("gcn", stages=2, replicas=2, kind="layerwise", importance="fastgcn", labor=False), {}),
        (config_of("gat", stages=2, replicas=2, kind="joined", joined=2, norm="batch"), {}),
        (config_of("gcnii", stages=2, replicas=2, kind="saint", walk_rounds=3, size=3, per_step=2), {}),
        (config_of("sage", stages=2, replicas=2, kind="shadow", budget=2), {"multi_label": True}),
    ]
    compare(pool, 4, cases, serial)


@pytest.mark.parametrize(
    "keys", [{}, {"kind": "joined", "joined": 1}, {"kind": "saint", "size": 3, "draws": "node"}]
)
def test_an_epoch_deals_out_every_seed_once_and_its_loss_is_their_mean(keys):
    trainer = trainer_of(config_of(per_step=2, **keys))
    dealt = [trainer.feed.draw(step) for step in range(trainer.feed.steps_per_epoch)]
    if not keys:
        seeds = torch.cat([one.batch.target_vertices for step in dealt for one in step.minis.values()])
        graph = trainer.chunked.graph
        assert torch.equal(seeds.sort().values, (graph.train_mask & (graph.y >= 0)).nonzero()[:, 0])
    steps = [trainer_of(config_of(per_step=2, **keys)) for _ in range(2)]
    one = steps[0].train_epoch()
    results = [steps[1].train_step() for _ in dealt]
    assert steps[0].step == len(dealt) > 1
    total = sum(step.normaliser for step in dealt)
    mean = sum(result.loss * step.normaliser for result, step in zip(results, dealt, strict=True)) / total
    assert one.loss == pytest.approx(mean, rel=1e-12)
    assert steps[1].feed.ends_epoch(len(dealt) - 1) and not steps[1].feed.ends_epoch(0)


def test_drawn_ahead_or_not_is_the_same():
    found = []
    for prefetch in (0, 3):
        trainer = trainer_of(config_of(prefetch=prefetch))
        found.append([trainer.train_step().loss for _ in range(4)])
        trainer.close()
    assert found[0] == found[1]


def test_estimates_of_the_mean_count_by_their_draws():
    """GraphSAINT: a batch's loss weights make it a mean already."""
    trainer = trainer_of(config_of(kind="saint", size=3, per_step=2, draws="edge"))
    step = trainer.feed.draw(0)
    assert [one.share for one in step.minis.values()] == [0.5, 0.5]
    last = trainer.feed.draw(trainer.feed.steps_per_epoch - 1)
    shares = [one.share for one in last.minis.values()]
    assert sum(shares) == pytest.approx(1.0) and last.normaliser < 6


def test_a_step_without_a_label_is_zero():
    graph = tiny_graph()
    chunked = chunked_graph(3, graph.replace(train_mask=torch.zeros_like(graph.train_mask)))
    config = config_of(kind="joined", joined=2)
    trainer = Trainer(build("gcn", chunked.graph), chunked, config, Context.single())
    before = {name: p.clone() for name, p in trainer.parameters().items()}
    assert trainer.train_step().loss == 0.0
    assert all(torch.equal(p, before[name]) for name, p in trainer.parameters().items())


def test_first_neighbours_are_drawn_only_where_they_are_read(pool):
    """A last stage of two layers draws two hops, and they are those that one process draws."""
    config = config_of("gcn", stages=2)
    drawn = pool.run(first_blocks, 2, config)
    alone = first_blocks(Context.single(), config_of("gcn"))
    assert [len(one) for one in drawn] == [4, 3] and len(alone) == 4
    for ends, columns in drawn[1]:
        assert any(torch.equal(ends, e) and torch.equal(columns, c) for e, c in alone)


def first_blocks(context, config):
    """For the pool: the structure of the first mini-batch, as this process draws it."""
    (one,) = trainer_of(config, context).feed.draw(0).minis.values()
    return [(block.indptr, block.columns) for block in one.batch.blocks]


def test_what_makes_no_sense_is_refused_with_all_faults():
    with pytest.raises(InputError) as error:
        RunConfig(
            model=ModelConfig(num_layers=3),
            batch=BatchConfig(kind="neighbour", fanouts=(5, 0), replace=True, labor=True, steps_per_epoch=2),
        )
    assert [fault.partition(":")[0] for fault in error.value.faults] == [
        "batch.steps_per_epoch",
        "batch.fanouts",
        "batch.fanouts",
        "batch.labor",
    ]
    assert "model.num_layers=3" in error.value.faults[1]
    with pytest.raises(InputError, match=r"use parallel\.ways=2"):
        RunConfig(parallel=ParallelConfig(replicas=2))
    with pytest.raises(InputError, match="control_variates"):
        RunConfig(history=HistoryConfig(control_variates=True))


def test_a_model_that_cannot_run_on_the_batches_is_refused():
    graph = tiny_graph()
    config = config_of("gat", fanouts=(2, 2, 2, 2))
    config = replace(config, history=HistoryConfig(control_variates=True))
    assert "looks at single edges" in sampling_faults(config, build("gat", graph))[0]
    branching = replace(config, model=model_config("branching"))
    assert "has branches" in sampling_faults(branching, build("branching", graph))[0]
    mixed = replace(config_of("gcn"), model=model_config("mixed"))
    assert "5 layers" in sampling_faults(mixed, build("mixed", graph))[0]
