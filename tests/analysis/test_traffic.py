"""Bytes and memory told before a run against what the run sends and holds."""

from itertools import accumulate, pairwise

import pytest
import torch
from oracle.driver import Case, make_trainer

from gnnpar.analysis import cost_of_model, epoch_traffic, step_traffic
from gnnpar.analysis.memory import KINDS, process_memory
from gnnpar.history import HistoryPolicy
from gnnpar.runtime import needs_two_copies
from gnnpar.train.feed import ChunkFeed
from gnnpar.train.order import build_schedule

STEPS = 3
PLAIN = {"chunks": 4, "gamma": 0.0, "steps": STEPS}
CASES = [
    Case(layer="gcnii", stages=2, split=(2, 2), chunks=4, gamma=2.0, mode="snapshot", optimizer="adam"),
    Case(layer="gcn", stages=2, split=(1, 3), chunks=4, model=(("jumping_knowledge", "cat"),)),
    Case(layer="gat", ways=2, chunks=2, recompute=True),
    Case(layer="gcn", ways=2, chunks=2, gamma=0.0),
    Case(layer="sage", ways=2, chunks=1, directed=False),
    Case(layer="gcn", ways=2, chunks=4, joined=2, parts=2, warmup=0, compensate=True),
    Case(layer="gcnii", stages=2, split=(2, 2), chunks=4, parts=2, warmup=1, gamma=0.0, refresh=2),
    Case(layer="sage", stages=2, split=(1, 1, 1, 1), schedule="interleaved", **PLAIN),
    Case(layer="gcn", stages=2, split=(2, 2), schedule="chimera", model=(("norm", "batch"),), **PLAIN),
    Case(
        layer="resgcn",
        stages=2,
        split=(2, 2),
        schedule="chimera",
        mode="snapshot",
        optimizer="adamw",
        **PLAIN,
    ),
]
EXACT = ("parameters", "gradients", "optimizer", "cuts", "Z and D")


def run(context, cases):
    """What this process sent in every step, and what it holds after the last."""
    return [run_case(make_trainer(case, context), context.rank) for case in cases]


def run_case(trainer, rank):
    sent = []
    for _ in range(STEPS):
        trainer.recorder.reset()
        trainer.train_step()
        flows = {(kind, peer): count for (kind, peer), count in trainer.recorder.bytes_sent.items() if count}
        sent.append({key: count for key, count in flows.items() if key[0] != "control"})
    stages = trainer.executor.stages.values()
    aggregations = [one for stage in stages for one in stage.aggregations]
    parameters = [p for stage in stages for p in stage.parameters()]
    buffers = [b for stage in stages for _, layer in stage.layers for b in layer.buffers()]
    moments = [
        value
        for update in trainer._updates
        for state in update.optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    seconds = [one.z if hasattr(one, "z") else one.gradient for one in aggregations]
    held = {
        "parameters": size(parameters + buffers),
        "gradients": size(p.grad for p in parameters if p.grad is not None),
        "optimizer": size(value for value in moments if torch.is_tensor(value)),
        "cuts": size(one.cut.buffer for one in aggregations),
        "Z and D": size(seconds),
    }
    return sent, held


def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def told(case):
    """The plan of a case, made without processes as `make_trainer` does."""
    from oracle.driver import ChunkedGraph, chunk_assignment

    graph, config = case.build_graph(), case.config()
    chunk_of = chunk_assignment(graph, case.mesh.num_chunks)
    shuffled = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    order = shuffled[torch.argsort(chunk_of[shuffled], stable=True)]
    offsets = (0, *torch.bincount(chunk_of, minlength=case.mesh.num_chunks).cumsum(0).tolist())
    chunked = ChunkedGraph(graph.permute(order), offsets)
    model = case.build_model(graph)
    units = model.units()
    counts = case.split or (len(units),)
    split = [sum(map(len, units[a:b])) for a, b in pairwise([0, *accumulate(counts)])]
    copies = 2 if needs_two_copies(model, HistoryPolicy.of(config), config.memory.recompute) else 1
    feed = ChunkFeed(config, case.mesh, build_schedule(config), chunked, copies, model.chunk_dependent)
    return model, split, feed


@pytest.fixture(scope="module")
def ran(pool):
    """{case: [(sent, held) of every process]}."""
    ranks = pool.run(run, 2, CASES, timeout_s=100)
    return dict(zip(CASES, zip(*ranks, strict=True), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_are_what_the_run_sends_over_every_link(ran, case):
    model, split, feed = told(case)
    kinds = set()
    for step in range(STEPS):
        found = {
            (flow.kind, flow.source, flow.target): flow.bytes
            for flow in step_traffic(model, split, feed, step)
        }
        wanted = {
            (kind, rank, peer): count
            for rank, (sent, _) in enumerate(ran[case])
            for (kind, peer), count in sent[step].items()
        }
        assert found == wanted, f"step {step}"
        kinds |= {kind for kind, _, _ in found}
    assert kinds >= ({"halo", "weight"} if case.ways == 2 else {"stage"})
    assert ("history" in kinds) is (case.schedule == "chimera")


def test_an_epoch_is_all_its_steps(ran):
    """One exact step, then two steps an epoch; histories are refreshed before the third step."""
    (case,) = [case for case in CASES if case.refresh]
    for epoch, steps in ((0, [0]), (1, [1, 2])):
        model, split, feed = told(case)
        flows = epoch_traffic(model, split, feed, epoch)
        sent = [ran[case][rank][0][step] for rank in (0, 1) for step in steps]
        assert sum(flow.bytes for flow in flows) == sum(sum(one.values()) for one in sent) > 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_memory_is_what_the_run_holds(ran, case):
    model, split, feed = told(case)
    cost = cost_of_model(model, feed.trained.graph)
    found = process_memory(model, split, feed, cost.layers, dict(cost.values))
    assert len(found) == 2
    for rank, (_, held) in enumerate(ran[case]):
        assert set(found[rank]) == set(KINDS)
        assert {kind: found[rank][kind] for kind in EXACT} == held
        whole = found[rank]["parameters"] + found[rank]["other stages"]
        everything = [*model.parameters(), *model.buffers()]
        replicas = feed.schedule.num_replicas
        if replicas == 1:
            assert whole == size(everything)
    assert found[0]["features"] > 0


def test_recomputation_saves_activations():
    kept, again = (
        activations(Case(layer="gcnii", stages=2, split=(2, 2), chunks=4, recompute=recompute))
        for recompute in (False, True)
    )
    assert 0 < again < kept / 4


def activations(case):
    model, split, feed = told(case)
    cost = cost_of_model(model, feed.trained.graph)
    return process_memory(model, split, feed, cost.layers, dict(cost.values))[0]["activations"]
