"""Totals of models, training schemes, and the asymptotic forms that were published for them."""

import math

import pytest
import torch
from analysis.counts import config, small_graph
from model.branching import towers
from support.graphs import tiny_graph
from torch import nn

from gnnpar.analysis import cost_of_model, log2, schemes, symbol
from gnnpar.graph import SparseRows
from gnnpar.model import GCN, Decoder, Encoder, Layer, LayerStack, Push
from gnnpar.model.edges import edge_sum

n, m, k, d, c, L = (symbol(name) for name in "nmkdcL")
LOG_K, LOG_D, LOG_C, LOG_N = (log2(symbol(name)) for name in "kdcn")


def forward_of(name, **keys):
    layer = cost_of_model(config(name, **keys), small_graph()).layers[1]
    return layer.forward.total_work.leading, layer.forward.total_depth.leading


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gcnii", "resgcn", "gat"])
def test_a_layer_is_in_the_published_class(name):
    """Besta and Hoefler's table of layers: O(mk + nk²) work and O(log k + log d) depth (GIN: K = 2)."""
    assert forward_of(name) == (m * k + n * k**2, LOG_K + LOG_D)


class Gated(Layer):
    """G-GCN, both maps on edges: ψ = σ(A h_v + B h_u) ⊙ h_u."""

    operator = Push()

    def __init__(self, width):
        super().__init__()
        self.own, self.other, self.root = (nn.Linear(width, width, bias=False) for _ in range(3))

    def aggregate(self, x, block, rows):
        source, row = x.index_select(0, block.columns), x.index_select(0, block.rows)
        gate = (self.own(row) + self.other(source)).sigmoid()
        return edge_sum(gate * source, block.rows, block.num_rows) + self.root(x[: block.num_rows])


class EdgeMLP(Layer):
    """EdgeConv-K with K = 2 and a sum."""

    operator = Push()

    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(2 * width, width), nn.Linear(width, width)

    def aggregate(self, x, block, rows):
        from torch import cat

        source, row = x.index_select(0, block.columns), x.index_select(0, block.rows)
        message = self.outer(self.inner(cat([row, source - row], 1)).relu())
        return edge_sum(message, block.rows, block.num_rows)


@pytest.mark.parametrize(("make", "wanted"), [(Gated, m * k**2 + n * k**2), (EdgeMLP, m * k**2)])
def test_maps_on_edges_cost_edges_times_width_squared(make, wanted):
    model = LayerStack(Encoder(7, 6), [make(6)], Decoder(6, 3)).double()
    layer = cost_of_model(model, tiny_graph()).layers[1]
    work = layer.forward.total_work.leading
    # On edges a linear map of the destination reads as one of every edge.
    assert work == wanted
    assert layer.forward.total_depth.leading == LOG_K + LOG_D


def test_all_layers_alike_stand_as_l_times_one():
    cost = cost_of_model(config("gcn", num_layers=32), small_graph())
    one = cost_of_model(config("gcn", num_layers=3), small_graph()).layers[1]
    ends = cost.layers[0].work + cost.layers[-1].work
    assert cost.work == ends + L * one.work
    assert cost.work.value(cost.values) == sum(layer.work.value(cost.values) for layer in cost.layers)
    assert len(cost.layers) == 34 and [x.name for x in cost.layers[1:4]] == [
        "layers.0",
        "layers.1",
        "layers.2",
    ]


def square(expr):
    """With features and classes as wide as the layers, and every row labelled."""
    return expr.substitute({"F": k, "C": k, "t": n}).leading


def scheme(name, layers=2, seeds=2, fanout=3):
    cost = cost_of_model(config(name, num_layers=layers), small_graph())
    return {one.kind: one for one in schemes(cost, seeds=seeds, fanout=fanout)}


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_schemes_have_the_published_forms(name):
    """Besta and Hoefler's table of training schemes; log n is the sum of a weight's gradient over rows."""
    found = scheme(name)
    for kind in ("full", "chunks", "clusters", "saint"):
        assert square(found[kind].work) == L * (m * k + n * k**2), kind
    assert square(found["full"].depth) == L * LOG_K + L * LOG_D + LOG_N
    assert square(found["saint"].depth) == L * LOG_K + L * LOG_D + log2(symbol("b"))
    for layers in (2, 4):
        sampled = scheme(name, layers=layers)["neighbour"]
        assert square(sampled.work) == c**layers * n * k**2
        assert square(sampled.depth) == L * LOG_K + L * LOG_C + log2(symbol("b"))
    # One seed a batch, as there; the published form leaves out the edges among a layer's c rows.
    layerwise = found["layerwise"].work.substitute({"b": 1})
    assert square(layerwise) == L * c * n * k**2 + L * c**2 * m * k * n**-1
    assert square(found["layerwise"].depth) == L * LOG_K + L * LOG_C


def test_numbers_of_samples_are_at_most_those_of_the_graph():
    found = scheme("gcn", layers=3, seeds=6, fanout=1000)
    full, sampled = found["full"], found["neighbour"]
    assert sampled.work_value <= full.work_value and sampled.steps_value == 1
    assert scheme("gcn", layers=3, seeds=1, fanout=1)["neighbour"].work_value < full.work_value


def test_sparse_features_of_a_sample_are_those_of_its_rows():
    x = SparseRows(torch.tensor([0, 2, 2, 3, 5, 5, 6]), torch.zeros(6, dtype=torch.int32), torch.ones(6), 7)
    cost = cost_of_model(config("gcn", num_layers=2), small_graph().replace(x=x))
    found = {one.kind: one.work for one in schemes(cost, seeds=2, fanout=3)}
    z, t, b = symbol("z"), symbol("t"), symbol("b")
    of_encoder = {
        "full": z * k,
        "clusters": z * k,
        "saint": z * k,
        "neighbour": z * k * t * c**2 * n**-1,
        "layerwise": z * k * t * c * n**-1 * b**-1,
    }
    for kind, wanted in of_encoder.items():
        terms = found[kind].terms
        stored = [{monomial: value} for monomial, value in terms.items() if dict(monomial).get("z")]
        assert any(list(one) == list(wanted.terms) for one in stored), kind


def test_parallelism_is_work_over_depth():
    cost = cost_of_model(config("gcn"), small_graph())
    assert cost.parallelism == cost.work.value(cost.values) / cost.depth.value(cost.values)
    assert scheme("gcn")["full"].parallelism == pytest.approx(cost_of_small_parallelism())


def cost_of_small_parallelism():
    return cost_of_model(config("gcn", num_layers=2), small_graph()).parallelism


def test_depth_is_that_of_the_longest_chain():
    """Forward through every layer; back to the weights of the encoder, whose sum over rows comes last."""
    cost = cost_of_model(config("gcn", num_layers=3), small_graph())
    encoder, *inner, decoder = cost.layers
    wanted = encoder.forward.total_depth + decoder.forward.total_depth
    wanted = wanted + decoder.backward.total_depth + encoder.backward.weights
    for layer in inner:
        wanted = wanted + layer.forward.total_depth + layer.backward.total_depth
    assert cost.depth.value(cost.values) == pytest.approx(wanted.value(cost.values))


def test_branches_run_side_by_side():
    """Two towers of one and of two graph layers that meet: the longer one counts."""
    model, graph = towers(), tiny_graph()
    cost = cost_of_model(model, graph)
    names = model.layer_names()
    depth = {
        name: x.forward.total_depth.value(cost.values) for name, x in zip(names, cost.layers, strict=True)
    }
    far = sum(value for name, value in depth.items() if name.startswith("branches.far"))
    near = sum(value for name, value in depth.items() if name.startswith("branches.near"))
    others = sum(depth.values()) - far - near
    backward = sum(part.value(cost.values) for part in cost._backward_chain())
    assert near < far
    assert math.isclose(cost.depth.value(cost.values) - backward, far + others)
    assert cost.levels()[names.index("decoder")] == 0
    assert max(cost.levels()) == 3


def test_a_model_of_many_widths_has_a_symbol_for_each():
    layers = [GCN(6, 9), GCN(9, 9), GCN(9, 5)]
    model = LayerStack(Encoder(7, 6), layers, Decoder(5, 3))
    cost = cost_of_model(model, small_graph())
    widths = {name: value for name, value in cost.values.items() if name.startswith("k")}
    assert sorted(widths.values()) == [5, 6, 9]
    by_hand = 2 * 6 * (7 * 6 + 6 * 9 + 9 * 9 + 9 * 5) + 2 * 3 * 5 * 3
    assert sum(x.forward.by_kernel("GEMM").value(cost.values) for x in cost.layers) == by_hand
