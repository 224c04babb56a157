"""Stages over mini-batches, in one process: all neighbours of all vertices are the whole graph; blocks of any
kind give what dense algebra on them gives; stages of any cut give what one stage gives.
"""

import copy
from itertools import accumulate, pairwise

import pytest
import torch
from oracle.models import LAYER_TYPES, PULL, build
from runtime.cases import make_config
from support.graphs import tiny_graph
from torch.nn import functional as F

from gnnpar.batch import (
    BatchKey,
    Mini,
    MiniBatch,
    NeighbourSampler,
    SaintSampler,
    SampledStep,
    ShadowSampler,
    edge_draws,
)
from gnnpar.config.schema import MemoryConfig
from gnnpar.dist import Context, Transport
from gnnpar.model import Rows
from gnnpar.runtime import Executor, build_sampled_stage
from gnnpar.schedule import Action, Kind, Schedule
from gnnpar.trace import Recorder

TOLERANCE = 1e-10
SEED, STEP = 3, 5


def labelled(graph):
    known = ~graph.y.isnan().all(1) if graph.multi_label else graph.y >= 0
    return (known & graph.train_mask).nonzero()[:, 0]


def run(model, graph, batches, shares, split=None, *, recompute=False, halves=False):
    """Loss and gradients of one step over these batches, stages of `split` layers on one rank."""
    model = copy.deepcopy(model)
    split = split or [len(model.all_layers())]
    config = make_config(seed=SEED, memory=MemoryConfig(recompute=recompute))
    payloads = model.payloads(graph, split)
    stages = {
        (0, number): build_sampled_stage(model, graph, range(*ends), config, payloads, number)
        for number, ends in enumerate(pairwise([0, *accumulate(split)]))
    }
    minis = [MiniBatch(index) for index in range(len(batches))]
    found = {m: Mini(batch, share) for m, batch, share in zip(minis, batches, shares, strict=True)}
    reads = SampledStep(tuple((m,) for m in minis), found)
    recorder = Recorder()
    executor = Executor(0, stages, Transport(Context.single(), recorder), recorder, torch.device("cpu"))
    loss = executor.run(on_one_rank(len(split), len(batches), halves), reads, STEP)
    assert not any(stage._flights or any(stage._pending.values()) for stage in stages.values())
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def on_one_rank(num_stages, num_micro_batches, halves):
    forward = [Action(Kind.F, s, (m,)) for m in range(num_micro_batches) for s in range(num_stages)]
    kind = Kind.I if halves else Kind.B
    backward = [Action(kind, action.stage, action.micro_batches) for action in reversed(forward)]
    late = [Action(Kind.W, s, tuple(range(num_micro_batches))) for s in range(num_stages) if halves]
    program = [*forward, *backward, *late, *(Action(Kind.STEP, s) for s in range(num_stages))]
    return Schedule("local", num_stages, num_micro_batches, (program,), ((0,) * num_stages,))


def whole_graph(model, graph):
    """The same by the model's own `forward` on the whole graph."""
    model, rows = copy.deepcopy(model), labelled(graph)
    logits = model(graph, seed=SEED, step=STEP)[rows]
    if graph.multi_label:
        known = ~graph.y[rows].isnan()
        loss = F.binary_cross_entropy_with_logits(logits[known], graph.y[rows][known])
    else:
        loss = F.cross_entropy(logits, graph.y[rows])
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def assert_same(found, wanted):
    assert found[0] == pytest.approx(wanted[0], rel=TOLERANCE)
    largest = max(float(g.abs().max()) for g in wanted[1].values())
    for name, gradient in wanted[1].items():
        assert float((found[1][name] - gradient).abs().max()) <= TOLERANCE * largest, name


def all_neighbours(graph, depth, seeds=None):
    """The batch of some seeds (all labelled ones) with all edges at every hop."""
    fanouts = [int(graph.in_degree.max())] * depth
    return NeighbourSampler(graph, fanouts).sample(
        labelled(graph) if seeds is None else seeds, BatchKey(0, 0, 0)
    )


LAYERS = [*LAYER_TYPES, "mixed", "pyg", "gen+edges"]
HOW = [(layer, True, how) for layer in LAYERS for how in ("stages", "recompute", "halves")]
HOW += [(layer, False, "plain") for layer in LAYERS]


@pytest.mark.parametrize(("layer", "directed", "how"), HOW)
def test_all_neighbours_of_all_seeds_are_full_batch_training(layer, directed, how):
    graph = tiny_graph(directed, edge_features=2 if layer == "gen+edges" else 0)
    model = build(layer, graph)
    depth, count = len(model.units()), len(model.all_layers())
    keys = {
        "plain": {},
        "stages": {"split": [2, 1, count - 3]},
        "recompute": {"recompute": True},
        "halves": {"halves": True, "split": [2, count - 2]},
    }
    found = run(model, graph, [all_neighbours(graph, depth)], [1 / labelled(graph).numel()], **keys[how])
    assert_same(found, whole_graph(model, graph))


@pytest.mark.parametrize(
    "options",
    [{"weighted": True}, {"sparse": True}, {"multi_label": True}, {"loops": True}],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_graphs_of_every_kind(layer, options):
    graph = tiny_graph(**options)
    model = build(layer, graph, jumping_knowledge="cat")
    rows = labelled(graph)
    total = int((~graph.y[rows].isnan()).sum()) if graph.multi_label else rows.numel()
    found = run(model, graph, [all_neighbours(graph, 4)], [1 / total], [2, 1, 3])
    assert_same(found, whole_graph(model, graph))


@pytest.mark.parametrize("layer", ["gcnii", "gat"])
@pytest.mark.parametrize("split", [None, [3, 3]])
def test_mini_batches_of_a_step_add_up(layer, split):
    """Uneven ones, one of them without a seed: with all neighbours, together they are full batch."""
    graph = tiny_graph()
    model, rows = build(layer, graph), labelled(graph)
    parts = torch.tensor_split(rows, [2, 2, 9])
    batches = [all_neighbours(graph, 4, part) for part in parts]
    found = run(model, graph, batches, [1 / rows.numel()] * 4, split)
    assert_same(found, whole_graph(model, graph))


@pytest.mark.parametrize("layer", PULL)
@pytest.mark.parametrize("directed", [True, False])
def test_a_sampled_aggregation_is_that_of_its_blocks(layer, directed):
    """Dense algebra over the blocks themselves: weights, whole-graph degrees, rows first."""
    graph = tiny_graph(directed)
    model, rows = build(layer, graph), labelled(graph)
    batch = NeighbourSampler(graph, [2, 3, 2, 3]).sample(rows, BatchKey(1, 2, 3))
    assert any(
        block.num_edges < int(graph.in_degree[batch.vertices[: block.num_rows]].sum())
        for block in batch.blocks
    )
    found = run(model, graph, [batch], [1 / rows.numel()], [2, 4])
    assert_same(found, by_dense_blocks(model, graph, batch, 1 / rows.numel()))


def by_dense_blocks(model, graph, batch, share):
    """Loss and gradients with every block as a dense matrix, autograd all through."""
    model = copy.deepcopy(model)
    h, carries, number = graph.x[batch.vertices], {}, 0
    for index, layer in enumerate(model.all_layers()):
        block = batch.blocks[min(number, len(batch.blocks) - 1)]
        z, rows = h, rows_of(graph, batch, h, index)
        if layer.operator is not None:
            z = dense_block(block, layer.operator) @ layer.before(h, carries, rows)
            h, carries = h[: block.num_rows], {name: c[: block.num_rows] for name, c in carries.items()}
            number += 1
        h = layer.after(z, h, carries, rows_of(graph, batch, h, index))
        if index in model.keeps:
            carries[model.keeps[index]] = h
    losses = F.cross_entropy(h[batch.targets], graph.y[batch.target_vertices], reduction="none")
    loss = share * (losses if batch.loss_weight is None else losses * batch.loss_weight).sum()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def rows_of(graph, batch, h, index):
    return Rows(graph.node_ids[batch.vertices[: len(h)]], SEED, STEP, index, True)


def dense_block(block, operator):
    weight = torch.ones(block.num_edges).double() if block.edge_weight is None else block.edge_weight
    matrix = torch.zeros(block.num_rows, block.num_columns).double()
    matrix.index_put_((block.rows, block.columns), weight, accumulate=True)
    own = torch.arange(block.num_rows)
    matrix[own, own] += float(operator.self_loops)
    degree = block.in_degree.double() + float(operator.self_loops)
    if operator.norm == "sum":
        return matrix
    power = -0.5 if operator.norm == "sym" else -1.0
    scale = torch.where(degree > 0, degree**power, 0.0)
    matrix = scale[: block.num_rows, None] * matrix
    return matrix * scale if operator.norm == "sym" else matrix


@pytest.mark.parametrize("kind", ["shadow", "saint"])
def test_one_block_serves_all_layers(kind):
    graph = tiny_graph()
    model, rows = build("gcnii", graph), labelled(graph)
    if kind == "shadow":
        batch = ShadowSampler(graph, 2, 3).sample(rows, BatchKey(1, 2, 3))
        assert batch.vertices.numel() > batch.vertices.unique().numel()
    else:
        batch = SaintSampler(edge_draws(graph), rows, 20).sample(torch.arange(20), BatchKey(1, 2, 3))
        assert batch.loss_weight.unique().numel() > 1
    assert len(batch.blocks) == 1
    found = run(model, graph, [batch], [1 / rows.numel()], [3, 3])
    assert_same(found, by_dense_blocks(model, graph, batch, 1 / rows.numel()))


def test_branches_run_on_one_block():
    """Branches of different depths have the same rows where one block serves all layers."""
    graph = tiny_graph()
    model, rows = build("branching", graph), labelled(graph)
    batch = ShadowSampler(graph, 1, 3).sample(rows, BatchKey(1, 2, 3))
    one = run(model, graph, [batch], [1 / rows.numel()])
    assert_same(run(model, graph, [batch], [1 / rows.numel()], [3, 4, len(model.all_layers()) - 7]), one)


def test_no_seeds_at_all_are_no_gradients():
    graph = tiny_graph()
    model = build("gcn", graph)
    loss, gradients = run(model, graph, [all_neighbours(graph, 4, labelled(graph)[:0])], [1.0], [3, 3])
    assert loss == 0.0 and all(gradient is None for gradient in gradients.values())


def test_the_transpose_of_a_block():
    graph = tiny_graph()
    block = NeighbourSampler(graph, [3], replace=True).sample(torch.arange(20), BatchKey(0, 0, 0)).blocks[0]
    ends, rows, edges = block.transpose
    columns, wanted = torch.sort(block.columns, stable=True)
    assert torch.equal(edges, wanted) and torch.equal(rows, block.rows[edges])
    assert torch.equal(ends.diff(), torch.bincount(columns, minlength=block.num_columns))
