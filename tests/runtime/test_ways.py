"""Stages shared by groups of processes of unequal sizes, live: each micro-batch is split over the ways, and
loss, gradients and parameters are those of serial training on the same clusters.

PubMed in clusters where `GNNPAR_TEST_DATA` is set, else a tiny graph.
"""

import math
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from support.live import clusters_of, pubmed
from torch.nn import functional as F

from gnnpar.config.schema import (
    BatchConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from gnnpar.dist import Mesh
from gnnpar.schedule.families import FAMILIES
from gnnpar.train.job import make_model
from gnnpar.train.metrics import score
from gnnpar.train.trainer import Trainer

STEPS = 3
TOLERANCE = 1e-10
HIDDEN = 8
MODELS = {
    "resgcn": (ModelConfig(name="resgcn", num_layers=4, hidden=HIDDEN, dropout=0.3, norm="layer"), HIDDEN),
    "gcnii": (ModelConfig(name="gcnii", num_layers=4, hidden=HIDDEN, dropout=0.3), 2 * HIDDEN),
    "gat": (
        ModelConfig(name="gat", num_layers=4, hidden=HIDDEN, dropout=0.3, heads=2, attention_dropout=0.2),
        HIDDEN,
    ),
}
"""Model, and width of what crosses a boundary (with GCNII's h0)."""


@dataclass(frozen=True)
class Case:
    ways: tuple
    schedule: str = "one_f_one_b"
    model: str = "resgcn"
    slots: int = 4
    graph: str = "pubmed"
    clip: float | None = None

    def __str__(self):
        ways = "+".join(map(str, self.ways))
        clip = "-clip" if self.clip else ""
        return f"{self.schedule}-{ways}-{self.model}-{self.slots}-{self.graph}{clip}"

    @property
    def num_stages(self):
        return FAMILIES[self.schedule](len(self.ways), self.slots).num_stages

    @property
    def mesh(self):
        return Mesh.of(self.config())

    def config(self):
        split = (4 // self.num_stages,) * self.num_stages if 4 % self.num_stages == 0 else (1, 2, 1)
        return RunConfig(
            dtype="float64",
            seed=2,
            model=MODELS[self.model][0],
            batch=BatchConfig(num_chunks=self.slots, kind="clusters"),
            schedule=ScheduleConfig(name=self.schedule),
            parallel=ParallelConfig(stages=len(self.ways), ways=self.ways, layers_per_stage=split),
            optimizer=OptimizerConfig(name="adam"),
            train=TrainConfig(lr=0.01, weight_decay=5e-4, grad_clip=self.clip),
        )


CASES = [
    *(Case(ways, name) for ways in ((2, 1), (1, 2)) for name in ("one_f_one_b", "dapple_pa", "gpipe")),
    *(Case(ways, model=model, graph="tiny") for ways in ((2, 1), (1, 2)) for model in ("gcnii", "gat")),
    Case((2, 2), "dapple_pb"),
    Case((2, 2), "gpipe", model="gcnii", graph="tiny"),
    Case((1, 2, 1), "one_f_one_b"),
    Case((1, 2, 1), "dapple_pa", model="gat", graph="tiny"),
    Case((3, 1), "gpipe", slots=2),
    Case((1, 3), slots=1, graph="tiny"),
    Case((3,), "gpipe", slots=2, graph="tiny"),
    Case((2, 1), "zb_h1"),
    Case((2, 1), "one_f_one_b_2bp", model="gat", graph="tiny"),
    Case((1, 2), "interleaved", model="gcnii", graph="tiny"),
    Case((2, 1), "chimera"),
    Case((1, 2), "bitpipe", model="gcnii", graph="tiny"),
    Case((2, 1), clip=1e-3, graph="tiny"),
    Case((1, 2), "chimera", clip=1e-3, graph="tiny"),
]


@cache
def clusters(name, count):
    """A graph in disjoint clusters."""
    return clusters_of(pubmed() if name == "pubmed" else None, count)


@cache
def serial(graph_name, count, model_name, clip):
    """Loss, gradients and parameters of every step: the clusters one by one, in one process."""
    chunked = clusters(graph_name, count).isolated
    graph = chunked.graph
    config = Case((1,), "gpipe", model_name, graph=graph_name, clip=clip).config()
    model = make_model(config, graph).double()
    model.train()
    train = config.train
    optimizer = torch.optim.Adam(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    wanted = (graph.y >= 0) & graph.train_mask
    steps = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for chunk in chunked.chunks:
            rows = torch.zeros_like(wanted)
            rows[chunk.start : chunk.stop] = wanted[chunk.start : chunk.stop]
            logits = model(graph, seed=config.seed, step=step)
            loss = F.cross_entropy(logits[rows], graph.y[rows], reduction="sum") / wanted.sum()
            loss.backward()
            total += loss.item()
        if clip:
            norm = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt()
            assert norm > 10 * clip
            for p in model.parameters():
                p.grad *= clip / norm
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
        steps.append(SimpleNamespace(loss=total, gradients=gradients, parameters=parameters))
    return steps


def run_cases(context, cases, graphs):
    """For the pool: what this rank saw of every case's steps, and of the evaluation that followed."""
    found = {}
    for case in cases:
        chunked = graphs[case.graph, case.mesh.num_chunks]
        trainer = Trainer(make_model(case.config(), chunked.graph), chunked, case.config(), context)
        steps = []
        for _ in range(STEPS):
            trainer.recorder.reset()
            loss = trainer.train_step().loss
            held = [
                (stage, grads(update.named), {k: p.detach().clone() for k, p in update.named.items()})
                for (_, stage), update in zip(trainer.executor.stages, trainer._updates, strict=True)
            ]
            steps.append(SimpleNamespace(loss=loss, held=held, bytes=trainer.recorder.bytes_by_kind()))
        logits = trainer.evaluator.logits(trainer.feed.whole)
        words = trainer.describe_stages()
        found[case] = SimpleNamespace(steps=steps, logits=logits, scores=trainer.evaluate(), words=words)
        context.barrier("before the next case")
    return found


def grads(named):
    return {name: p.grad.clone() for name, p in named.items()}


@pytest.fixture(scope="module")
def live(pool):
    """`live(case)`: what each rank saw; all cases of one number of ranks run in one call."""

    @cache
    def all_of(ranks):
        cases = [case for case in CASES if case.mesh.size == ranks]
        graphs = {(case.graph, n): clusters(case.graph, n) for case in cases for n in [case.mesh.num_chunks]}
        return pool.run(run_cases, ranks, cases, graphs, timeout_s=200)

    return lambda case: [rank[case] for rank in all_of(case.mesh.size)]


def close(found, wanted, what):
    largest = max(float(g.abs().max()) for g in wanted.values())
    for name, value in found.items():
        error = float((value - wanted[name]).abs().max())
        assert error <= TOLERANCE * largest, f"{what} of {name} off by {error / largest:.1e}"


def reference(case):
    return serial(case.graph, case.mesh.num_chunks, case.model, case.clip)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_gradients_and_parameters_are_those_of_serial_training(live, case):
    ranks = live(case)
    schedule = FAMILIES[case.schedule](len(case.ways), case.slots)
    for number, wanted in enumerate(reference(case)):
        losses = {rank.steps[number].loss for rank in ranks}
        assert len(losses) == 1 and abs(losses.pop() - wanted.loss) <= TOLERANCE * abs(wanted.loss)
        copies = {}
        for rank in ranks:
            for stage, gradients, parameters in rank.steps[number].held:
                close(gradients, wanted.gradients, f"step {number}: gradient")
                close(parameters, wanted.parameters, f"step {number}: value")
                for name, value in parameters.items():
                    copies.setdefault((stage, name), []).append(value)
        assert {name for _, name in copies} == wanted.gradients.keys()
        for (stage, name), values in copies.items():
            assert len(values) == len(holders(case, schedule, stage))
            assert all(torch.equal(value, values[0]) for value in values), f"step {number}: {name} differs"


def holders(case, schedule, stage):
    return [rank for row in schedule.placement for rank in case.mesh.processes_of(row[stage])]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_are_their_closed_forms(live, case):
    """A row crosses a boundary once each way, however it is shared out; h holders send h (h - 1) copies, and
    as often a byte a parameter, which says whether there is a gradient."""
    ranks = live(case)
    schedule = FAMILIES[case.schedule](len(case.ways), case.slots)
    num_nodes = clusters(case.graph, case.mesh.num_chunks).graph.num_nodes
    sizes = {}
    for rank in ranks:
        for stage, gradients, _ in rank.steps[0].held:
            sizes[stage] = sum(g.numel() for g in gradients.values()), len(gradients)
    weight = control = 0
    for stage, (size, number) in sizes.items():
        count = len(holders(case, schedule, stage))
        same = count - len(set(holders(case, schedule, stage)))
        assert not same
        weight += 8 * size * count * (count - 1)
        control += number * count * (count - 1)
    crossing = sum(a != b for a, b in zip(schedule.placement[0], schedule.placement[0][1:], strict=False))
    payload = 2 * 8 * num_nodes * MODELS[case.model][1] * crossing
    for number in range(STEPS):
        sent = {}
        for rank in ranks:
            for kind, count in rank.steps[number].bytes.items():
                sent[kind] = sent.get(kind, 0) + count
        expected = {"stage": payload, "weight": weight, "control": control}
        assert sent == {kind: count for kind, count in expected.items() if count}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_ways_evaluate_the_whole_graph(live, case):
    ranks = live(case)
    graph = clusters(case.graph, case.mesh.num_chunks).graph
    model = make_model(case.config(), graph).double().eval()
    model.load_state_dict(reference(case)[-1].parameters, strict=False)
    with torch.no_grad():
        wanted = model(graph)
    (logits,) = (rank.logits for rank in ranks if rank.logits is not None)
    assert float((logits - wanted).abs().max()) <= 1e-8 * float(wanted.abs().max())
    assert {(r.scores.train, r.scores.val, r.scores.test) for r in ranks} == {
        (ranks[0].scores.train, ranks[0].scores.val, ranks[0].scores.test)
    }
    expected = score(logits, graph.y, graph.test_mask, "accuracy")
    assert ranks[0].scores.test == expected and not math.isnan(expected)


@pytest.mark.parametrize(
    ("ways", "schedule", "slots"),
    [((2, 1), "one_f_one_b", 2), ((1, 1), "chimera", 4), ((1, 2), "chimera", 2)],
)
def test_all_copies_of_batch_norms_saw_every_cluster(pool, ways, schedule, slots):
    """Statistics are those of one process that runs the same clusters one by one."""
    chunked = clusters("tiny", 4)
    alone = pool.run(states, 1, batch_norm_config((1,), "gpipe", 4), chunked)
    wanted = {name: value for _, held in alone[0] for name, value in held.items()}
    config = batch_norm_config(ways, schedule, slots)
    seen = {}
    for _, held in (pair for rank in pool.run(states, sum(ways), config, chunked) for pair in rank):
        for name, value in held.items():
            seen.setdefault(name, []).append(value)
    assert seen.keys() == wanted.keys() and any("running_var" in name for name in seen)
    for name, copies in seen.items():
        assert all(torch.equal(copy, copies[0]) for copy in copies), name
        torch.testing.assert_close(copies[0], wanted[name], rtol=1e-9, atol=1e-12, msg=name)


def batch_norm_config(ways, schedule, slots):
    return RunConfig(
        dtype="float64",
        model=ModelConfig(name="gcn", num_layers=4, hidden=HIDDEN, dropout=0.3, norm="batch"),
        batch=BatchConfig(num_chunks=slots, kind="clusters"),
        schedule=ScheduleConfig(name=schedule),
        parallel=ParallelConfig(stages=len(ways), ways=ways, layers_per_stage=(4 // len(ways),) * len(ways)),
        train=TrainConfig(lr=0.1),
        optimizer=OptimizerConfig(name="sgd"),
    )


def states(context, config, chunked):
    """For the pool: parameters and statistics of every stage of this rank after some steps."""
    trainer = Trainer(make_model(config, chunked.graph), chunked, config, context)
    for _ in range(STEPS):
        trainer.train_step()
    pairs = zip(trainer.executor.stages, trainer._updates, strict=True)
    return [
        (key, {name: value.detach().clone() for name, value in update.state.items()}) for key, update in pairs
    ]


def test_a_rank_says_which_way_it_is(live):
    words = [rank.words for rank in live(CASES[0])]
    assert [word.partition("stage")[0] for word in words] == ["way 0 of 2 of ", "way 1 of 2 of ", ""]
