"""Stages shared by several ways whose chunks read each other, live: loss and every gradient are those of
full-batch training (one chunk a way) or of the dense reference with slots, the same bits in all ways, and the
bytes of the halo are exactly those of the rows that are needed.
"""

import math
from itertools import accumulate, pairwise

import pytest
import torch
from oracle.driver import TOLERANCE, Case, make_trainer, mismatches, record_step, run_reference
from oracle.models import LAYER_TYPES, PULL
from support.graphs import chunk_assignment
from torch.nn import functional as F

from gnnpar.batch import ChunkedGraph
from gnnpar.parallel import Halo
from gnnpar.partition import partition_graph

P = 2
STEPS = 1 + 2 * P + 1

WHOLE = [
    *(
        Case(layer=layer, directed=directed, stages=stages, ways=ways, split=(4 // stages,) * stages)
        for stages, ways in ((1, 2), (1, 4), (2, 2))
        for layer in LAYER_TYPES
        for directed in (True, False)
    ),
    *(Case(layer=layer, ways=3, optimizer="adam") for layer in ("gcnii", "gat")),
    *(Case(layer=layer, stages=2, ways=(1, 3), split=(1, 3)) for layer in ("gcnii", "gat")),
    *(Case(layer=layer, ways=2, recompute=True) for layer in LAYER_TYPES),
    *(Case(layer=layer, ways=2, graph=(("weighted", True), ("loops", True))) for layer in ("gcn", "gen")),
    *(Case(layer=layer, ways=2) for layer in ("mixed", "pyg", "branching")),
    Case(layer="gen+edges", ways=2, graph=(("edge_features", 2),)),
    Case(layer="gcn", ways=2, graph=(("sparse", True),), model=(("jumping_knowledge", "cat"),)),
    Case(layer="gat", ways=2, graph=(("multi_label", True),), clip=None),
]


def hybrid(layer, stages=2, ways=2, chunks=3, mode="latest", gamma=1.0, **keys):
    keys = {"steps": STEPS, "period": P, "split": (4 // stages,) * stages} | keys
    return Case(layer=layer, stages=stages, ways=ways, chunks=chunks, mode=mode, gamma=gamma, **keys)


SLOTS = [
    *(
        hybrid(layer, mode=mode, gamma=gamma)
        for layer in ("gcnii", "gat")
        for mode in ("latest", "snapshot", "drop")
        for gamma in (0.0, 1.0, 2.0)
    ),
    *(hybrid("sage", mode=mode, gamma=gamma) for mode in ("latest", "snapshot") for gamma in (0.0, 2.0)),
    *(hybrid(layer, stages=1, mode="snapshot", gamma=2.0) for layer in LAYER_TYPES),
    *(hybrid(layer, mode="snapshot", gamma=2.0, directed=False) for layer in ("gcn", "gat")),
    *(
        hybrid(layer, stages=1, mode=mode, gamma=2.0, recompute=True)
        for layer in ("gcnii", "gat")
        for mode in ("latest", "snapshot", "drop")
    ),
    *(hybrid(layer, ways=(2, 1), mode="snapshot", gamma=2.0, chunks=2) for layer in ("gcnii", "gat")),
    *(hybrid(layer, ways=(1, 3), gamma=2.0, chunks=2) for layer in ("gcnii", "gat")),
    *(hybrid(layer, stages=1, ways=4, gamma=2.0, chunks=2) for layer in ("gcnii", "gat")),
    *(hybrid(layer, schedule="looped_bfs", split=(1,) * 4, gamma=2.0) for layer in ("gcnii", "gat")),
    *(hybrid(layer, schedule="gpipe_2bp", gamma=2.0) for layer in ("gcnii", "gat")),
    *(hybrid(layer, schedule="one_f_one_b", gamma=0.0, mode="snapshot") for layer in ("gcnii", "gat")),
    *(hybrid(layer, warmup=3, mode=mode) for layer in ("gcnii", "gat") for mode in ("latest", "snapshot")),
    hybrid("gcnii", shuffle=False),
    hybrid("mixed", stages=1, mode="snapshot", gamma=2.0, split=None),
]


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_one_chunk_a_way_equals_full_batch(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []


PLAIN = [c for c in WHOLE if c.layer in ("gcnii", "gat", "sage") and (c.ways, c.optimizer) != (3, "adam")]


@pytest.mark.parametrize("case", [c for c in PLAIN if not c.recompute], ids=str)
def test_one_chunk_a_way_equals_the_model_as_a_plain_module(runs, case):
    """The model's own `forward` and autograd on the whole graph, one process, no reference of ours."""
    graph = case.build_graph()
    model = case.build_model(graph)
    wanted = graph.train_mask.view(-1, *[1] * (graph.y.dim() - 1)) & (graph.y >= 0)
    loss_of = F.cross_entropy if graph.y.dim() == 1 else F.binary_cross_entropy_with_logits
    optimizer = torch.optim.SGD(model.parameters(), lr=case.learning_rate)
    for step, record in enumerate(runs[case]):
        optimizer.zero_grad()
        loss = loss_of(model(graph, seed=case.seed, step=step)[wanted], graph.y[wanted])
        loss.backward()
        assert record.loss == pytest.approx(loss.item(), rel=TOLERANCE)
        largest = max(float(p.grad.abs().max()) for p in model.parameters())
        assert record.gradients.keys() == dict(model.named_parameters()).keys()
        for name, p in model.named_parameters():
            assert float((record.gradients[name] - p.grad).abs().max()) <= TOLERANCE * largest, name
        optimizer.step()


@pytest.mark.parametrize("case", SLOTS, ids=str)
def test_several_slots_equal_the_dense_reference(runs, case):
    orders = [record.order for record in runs[case]]
    width = case.mesh.num_chunks // case.mesh.slot_size
    for order in orders:
        slots = [order[at : at + case.mesh.slot_size] for at in range(0, len(order), case.mesh.slot_size)]
        assert all([chunk // width for chunk in slot] == list(range(len(slot))) for slot in slots)
    assert mismatches(runs[case], runs.reference(case)) == []


@pytest.mark.parametrize("case", [c for c in SLOTS if c.ways == 2 and c.gamma == 1.0][:4], ids=str)
def test_chunks_one_by_one_would_not_do(runs, case):
    """The comparison can fail: the reference without slots differs."""
    orders = [record.order for record in runs[case]]
    assert mismatches(runs[case], run_reference(case, orders, slot_size=1))


@pytest.mark.parametrize("case", [*WHOLE, *SLOTS], ids=str)
def test_bytes_of_the_halo_are_their_closed_form(runs, case):
    """A row of K numbers a layer for every way that needs it, forward and backward, and nothing else."""
    graph = case.build_graph()
    operators = case.build_model(graph).all_layers()
    specs = case.build_model(graph).cut_specs(graph)
    for step, record in enumerate(runs[case]):
        wanted = 0
        for layer, ways in layers_and_ways(case, specs):
            mirrors = forward, by_rows, by_columns = count_rows(case, graph, record.order, step, ways)
            assert ways == 1 or min(mirrors) > 0
            fixed = type(operators[layer].operator).__name__ == "Pull"
            wanted += 8 * math.prod(specs[layer].tail) * (forward + (by_rows if fixed else by_columns))
        assert record.bytes_sent.get("halo", 0) == wanted, f"step {step}"
    assert wanted > 0


def layers_and_ways(case, specs):
    """(global index, ways of its column) of every layer that aggregates."""
    if case.split is None:
        return [(layer, case.mesh.ways[0]) for layer in specs]
    bounds = pairwise([0, *accumulate(case.split)])
    columns = [number % case.stages for number, (a, b) in enumerate(bounds) for _ in range(a, b)]
    return [(layer, case.mesh.ways[columns[place]]) for place, layer in enumerate(sorted(specs))]


def count_rows(case, graph, order, step, ways):
    """(row, way) pairs that one layer needs: of cuts, of D by rows, of ∂X by columns."""
    mesh, chunk_of = case.mesh, chunk_assignment(graph, case.mesh.num_chunks).tolist()
    exact = step < case.warmup or case.chunks == 1
    place = {chunk: 0 if exact else at // mesh.slot_size for at, chunk in enumerate(order)}
    closes = step >= case.warmup - 1 and (step - case.warmup + 1) % case.period == 0
    kept = {"latest": step >= case.warmup - 1, "snapshot": closes, "drop": False}[case.mode]
    cuts, rows, columns = set(), set(), set()
    for source, target in graph.edge_index.T.tolist():
        ends = chunk_of[source], chunk_of[target]
        owners = [chunk * ways // mesh.num_chunks for chunk in ends]
        if owners[0] == owners[1]:
            continue
        there, here = (place[chunk] for chunk in ends)
        if kept or there <= here:
            cuts.add((source, owners[1]))
        if there == here or (there < here and case.gamma):
            rows.add((target, owners[0]))
            columns.add((source, owners[1]))
    return len(cuts), len(rows), len(columns)


@pytest.mark.parametrize("case", [c for c in WHOLE if (c.stages, c.ways) == (1, 2)][:4], ids=str)
def test_mirrors_of_both_directions(case):
    """On an undirected graph as many rows come back as went out."""
    graph = case.build_graph()
    forward, by_rows, by_columns = count_rows(case, graph, (0, 1), 0, 2)
    assert forward == by_columns
    assert case.directed or forward == by_rows


class Waiting(Halo):
    """Sums nothing before all rows are there."""

    def inner(self, chunk, what):
        return 0


def train_both(context, case):
    """For the pool: records of a run that sums inner rows while messages travel, and of one that waits."""
    graph, found = case.build_graph(), []
    partition = partition_graph(graph, case.mesh.num_chunks, method="ldg", num_groups=case.mesh.slot_size)
    for kind in (Halo, Waiting):
        trainer = make_trainer(case, context, ChunkedGraph.build(graph, partition, case.mesh.slot_size))
        halos = [stage.halo for stage in trainer.executor.stages.values()]
        for halo in halos:
            halo.__class__ = kind
        inner = sum(
            halo.inner(chunk, what)
            for halo in halos
            for chunk in trainer.chunked.chunks
            if chunk.index in case.mesh.chunks_of(trainer.column, trainer.way)
            for what in ("cut", "aggregation gradient")
        )
        found.append(([record_step(trainer) for _ in range(case.steps)], inner))
    return found


OVERLAPPED = [
    Case(layer="sage", ways=2, directed=True),
    hybrid("gcnii", stages=1, chunks=2, mode="snapshot", gamma=2.0, directed=False),
    hybrid("gcnii", stages=1, chunks=3, mode="drop"),
]


@pytest.mark.parametrize("case", OVERLAPPED, ids=str)
def test_summing_inner_rows_early_changes_no_bit(pool, case):
    for (early, inner), (late, nothing) in pool.run(train_both, 2, case, timeout_s=60):
        assert inner > nothing == 0
        for one, two in zip(early, late, strict=True):
            assert one.loss == two.loss and one.bytes_sent == two.bytes_sent
            assert all(torch.equal(one.gradients[name], two.gradients[name]) for name in two.gradients)


def evaluate(context, case):
    """For the pool: scores after training, and logits where this rank has them."""
    trainer = make_trainer(case, context)
    for _ in range(case.steps):
        trainer.train_step()
    state = {name: value.clone() for name, value in trainer.state().items()}
    ids = trainer.chunked.graph.node_ids
    return trainer.evaluate(), trainer.evaluator.logits(trainer.feed.whole), ids, state


@pytest.mark.parametrize("case", [hybrid("gcnii", mode="snapshot"), hybrid("gat", ways=(2, 1))], ids=str)
def test_evaluation_is_exact_and_on_the_first_ways(pool, case):
    ranks = pool.run(evaluate, case.mesh.size, case)
    graph = case.build_graph()
    model = case.build_model(graph).eval()
    model.load_state_dict({name: value for rank in ranks for name, value in rank[3].items()}, strict=False)
    with torch.no_grad():
        wanted = model(graph)
    ((logits, ids),) = ((logits, ids) for _, logits, ids, _ in ranks if logits is not None)
    assert float((logits - wanted[ids]).abs().max()) <= TOLERANCE * float(wanted.abs().max())
    assert len({(scores.train, scores.val, scores.test) for scores, *_ in ranks}) == 1


def test_every_layer_type_is_here():
    assert {case.layer for case in WHOLE if case.stages == case.ways == 2} == set(LAYER_TYPES)
    assert set(PULL) < set(LAYER_TYPES)
