"""Stages as built for a rank: boundaries, copies, features, memory between forward and backward."""

import itertools

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from support.graphs import tiny_graph

from gnnpar.config.schema import MemoryConfig
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.runtime import OUT, build_stage, needs_two_copies
from gnnpar.runtime.aggregation import PullAggregation
from gnnpar.runtime.push import PushAggregation
from gnnpar.train.job import make_model

CPU = torch.device("cpu")


def stages(config, cuts, copies=1, **graph):
    chunked = chunked_graph(config.batch.num_chunks, **graph)
    model = make_model(config, chunked.graph).double()
    ends = [*cuts, len(model.all_layers())]
    ranges = [range(first, last) for first, last in zip([0, *cuts], ends, strict=True)]
    payloads = model.payloads(chunked.graph, [len(r) for r in ranges])
    return chunked, [
        build_stage(model, chunked, r, copies, config, CPU, payloads, number)
        for number, r in enumerate(ranges)
    ]


@pytest.mark.parametrize(
    ("layer", "mode", "recompute", "two"),
    [
        ("gcnii", "latest", False, False),
        ("gcnii", "latest", True, False),
        ("gcnii", "snapshot", False, True),
        ("gcnii", "drop", True, False),
        ("gat", "latest", False, False),
        ("gat", "latest", True, True),
        ("gat", "snapshot", True, True),
        ("gat", "drop", True, False),
    ],
)
def test_two_copies_are_kept_where_one_does_not_hold_all_that_is_read(layer, mode, recompute, two):
    config = make_config({"name": layer})
    model = make_model(config, tiny_graph())
    assert needs_two_copies(model, HistoryPolicy(mode, 2, 1.0, 1), recompute) is two


def test_neighbours_agree_on_the_payload():
    _, parts = stages(make_config({"num_layers": 4}), [2, 4])
    assert [len(stage.aggregations) for stage in parts] == [1, 2, 1]
    for number, (left, right) in enumerate(itertools.pairwise(parts)):
        assert left.sends[number + 1] == right.receives[number]
        assert [spec.name for spec in left.sends[number + 1]] == ["h", "h0"]
        assert len(left.sends) == len(right.receives) == 1
    assert parts[0].receives == {} and parts[-1].sends == {}
    assert [stage.features is not None for stage in parts] == [True, False, False]
    assert [stage.targets is not None for stage in parts] == [False, False, True]


@pytest.mark.parametrize(("layer", "kind"), [("gcn", PullAggregation), ("gat", PushAggregation)])
def test_the_operator_decides_how_a_stage_aggregates(layer, kind):
    _, (stage,) = stages(make_config({"name": layer}), [])
    assert len(stage.aggregations) == 3 and {type(a) for a in stage.aggregations} == {kind}


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_the_chunks_rows(sparse):
    chunked, (stage,) = stages(make_config(), [], sparse=sparse)
    dense = chunked.graph.x.to_dense() if sparse else chunked.graph.x
    for chunk in chunked.chunks:
        rows = stage.features(chunk)
        rows = rows.to_dense() if sparse else rows
        assert torch.equal(rows, dense[chunk.start : chunk.stop])


@pytest.mark.parametrize("recompute", [False, True])
def test_recompute_keeps_no_graph_of_operations_between_forward_and_backward(recompute):
    config = make_config({"name": "resgcn", "norm": "layer"}, memory=MemoryConfig(recompute=recompute))
    chunked, (stage,) = stages(config, [])
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1).exact
    slot = reads.slots[0]
    stage.forward(slot, {}, reads, 0)
    parts = [part for flight in stage._flights.values() for part in flight.parts]
    assert len(parts) == len(stage.passages) * len(slot)
    assert all((part.left is None and part.cut is None) is recompute for part in parts)
    stage.backward(slot, {}, reads, 0)
    assert not stage._flights


def test_losses_of_slots_add_up_to_the_loss_of_all():
    config = make_config({"dropout": 0.0})
    chunked, (stage,) = stages(config, [])
    planner = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1)
    exact = planner.exact
    stage.forward(exact.slots[0], {}, exact, 0)
    whole = stage.loss(exact.slots[0]).item()
    stage.backward(exact.slots[0], {}, exact, 0)
    reads = planner.plan(1, (0, 1, 2, 3))  # same parameters: every history equals the current value
    total = 0.0
    for slot in reads.slots:
        stage.forward(slot, {}, reads, 1)
        total += stage.loss(slot).item()
    assert total == pytest.approx(whole, rel=1e-12)


def test_evaluation_neither_drops_nor_touches_the_histories():
    config = make_config()
    chunked, (stage,) = stages(config, [])
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1).exact
    slot = reads.slots[0]
    stage.forward(slot, {}, reads, 0)
    stage.backward(slot, {}, reads, 0)
    kept = [aggregation.cut.buffer.clone() for aggregation in stage.aggregations]
    from gnnpar.history import CutStore

    over = [a.over(CutStore(chunked.graph.num_nodes, 1), None) for a in stage.aggregations]
    first = stage.evaluate(slot, {}, reads, over)
    again = stage.evaluate(slot, {}, reads, over)
    for chunk in slot:
        assert torch.equal(first[OUT][chunk][0], again[OUT][chunk][0])
        assert first[OUT][chunk][0].shape == (chunk.num_rows, 3)
    for aggregation, buffer in zip(stage.aggregations, kept, strict=True):
        assert torch.equal(aggregation.cut.buffer, buffer)
