"""The reference itself: by hand, against one big autograd graph, and against models without layer code."""

import copy
import math

import pytest
import torch
from oracle.dense_reference import DenseReference
from oracle.independent import IndependentGAT, IndependentGCNII, scaled_autograd_gradient
from oracle.models import build, history
from support.graphs import chunk_assignment, tiny_graph
from torch import nn

from gnnpar.graph.graph import Graph
from gnnpar.model.layer import Layer, Pull


class Weigh(Layer):
    """Cut w · h, then its sum over neighbours and itself."""

    operator = Pull("sum", self_loops=True)

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def before(self, h, carries, rows):
        return self.weight * h


class RowWise(Layer):
    operator = None

    def __init__(self, function):
        super().__init__()
        self.function = function

    def after(self, z, h, carries, rows):
        return self.function(z)


class Pair(nn.Module):
    """Encoder h = x, two `Weigh`, logits (z, 0)."""

    def __init__(self, a, b):
        super().__init__()
        ends = RowWise(lambda z: z), RowWise(lambda z: torch.cat([z, torch.zeros_like(z)], 1))
        self.a, self.b, self.ends = Weigh(a), Weigh(b), nn.ModuleList(ends)
        self.keeps = {}

    def all_layers(self):
        return [self.ends[0], self.a, self.b, self.ends[1]]


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("mode", ["latest", "drop"])
def test_two_vertices_by_hand(gamma, mode):
    x0, x1, a, b = 0.7, -1.3, 0.9, 1.7
    graph = Graph.from_edge_index(
        [[0, 1], [1, 0]],
        x=torch.tensor([[x0], [x1]], dtype=torch.float64),
        y=torch.tensor([0, 1]),
        train_mask=torch.tensor([True, True]),
    )
    model = Pair(a, b)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reference = DenseReference(model, graph, torch.tensor([0, 1]), history(mode, gamma=gamma), optimizer)

    # The warm-up step is exact: Z1 = a(x0 + x1) in both rows, Z2 = 2b·Z1 in both rows.
    warm = reference.step([1, 0])
    old_z1 = a * (x0 + x1)
    pull = (sigmoid(2 * b * old_z1) - 1) / 2, sigmoid(2 * b * old_z1) / 2
    assert float(warm.gradients["b.weight"]) == pytest.approx(2 * sum(pull) * old_z1, rel=1e-12)
    assert float(warm.gradients["a.weight"]) == pytest.approx(2 * b * sum(pull) * (x0 + x1), rel=1e-12)
    assert (warm.age, warm.share) == (0, 0)

    # Vertex 0 runs first and reads vertex 1's cuts of the warm-up step; vertex 1 reads everything.
    old_x1, old_x2 = (a * x1, b * old_z1) if mode == "latest" else (0.0, 0.0)
    a, b = model.a.weight.item(), model.b.weight.item()
    z1 = a * x0 + old_x1, a * (x0 + x1)
    z2 = b * z1[0] + old_x2, b * (z1[0] + z1[1])
    d2 = (sigmoid(z2[0]) - 1) / 2, sigmoid(z2[1]) / 2
    d_x2 = d2[0] + gamma * d2[1], d2[1]
    d_x1 = b * d_x2[0] + gamma * b * d_x2[1], b * d_x2[1]
    step = reference.step([0, 1])
    assert step.loss == pytest.approx((softplus(-z2[0]) + softplus(z2[1])) / 2, rel=1e-12)
    assert float(step.gradients["b.weight"]) == pytest.approx(d_x2[0] * z1[0] + d_x2[1] * z1[1], rel=1e-12)
    assert float(step.gradients["a.weight"]) == pytest.approx(d_x1[0] * x0 + d_x1[1] * x1, rel=1e-12)
    assert (step.age, step.share) == ((1, 0.5) if mode == "latest" else (0, 0))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def softplus(z):
    return math.log1p(math.exp(z))


def close(found, wanted, tolerance=1e-12):
    scale = max(float(g.abs().max()) for g in wanted.values())
    assert scale > 0
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert float((found[name] - wanted[name]).abs().max()) <= tolerance * scale, name


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("independent", [IndependentGCNII, IndependentGAT])
def test_one_chunk_is_full_batch_without_any_layer_code(independent, directed):
    graph = tiny_graph(directed, sparse=independent is IndependentGCNII)
    name = "gcnii" if independent is IndependentGCNII else "gat"
    model = build(name, graph)
    plain = independent(model, graph, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    whole = torch.zeros(graph.num_nodes, dtype=torch.int64)
    reference = DenseReference(model, graph, whole, history("latest"), optimizer, seed=3)
    for _ in range(3):
        loss, gradients = plain.step(lr=0.3)
        step = reference.step([0])
        assert step.loss == pytest.approx(loss, rel=1e-13)
        close(step.gradients, gradients)


@pytest.mark.parametrize(("streams", "slot_size"), [(None, 1), ((0, 1, 1, 0), 1), (None, 2)])
@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("mode", ["latest", "snapshot", "drop"])
@pytest.mark.parametrize("name", ["gcnii", "sage", "gat", "gen"])
def test_the_recursion_is_autograd_with_scaled_cross_chunk_edges(name, mode, gamma, streams, slot_size):
    graph = tiny_graph()
    model = build(name, graph, num_layers=3)
    chunks = chunk_assignment(graph, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    keys = {"streams": streams, "slot_size": slot_size}
    reference = DenseReference(model, graph, chunks, history(mode, gamma=gamma), optimizer, **keys)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 1, 0, 2]):
        before = copy.copy(reference.stored), copy.deepcopy(model.state_dict()), reference.t
        step = reference.step(order)
        loss, gradients = scaled_autograd_gradient(reference, *before, order)
        assert step.loss == pytest.approx(loss, rel=1e-13)
        close(step.gradients, gradients)
