"""Work and depth of layers against counts by hand, one line an operation."""

import math

import pytest
import torch
from analysis.counts import config, small_graph
from oracle.models import CUSTOM, LAYER_TYPES
from oracle.models import build as build_oracle
from support.graphs import tiny_graph
from torch.utils.flop_counter import FlopCounterMode

from gnnpar.analysis import cost_of_model, log2, symbol
from gnnpar.config.schema import ModelConfig
from gnnpar.graph import SparseRows
from gnnpar.model import build_model
from gnnpar.model.adapters import Foreign

n, m, k, T, F, C, t, z = (symbol(name) for name in "nmkTFCtz")
log_n, log_d, log_k, log_T, log_C, log_F, log_t = (log2(symbol(name)) for name in "ndkTCFt")
N, E, D, K = 6, 9, 5, 8  # vertices and edges of the small graph, most in-edges and the vertex itself, width

# Of a layer: phase → what it computes, in the order of its operations.
FORWARD = {
    "gcn": {
        "vertex": [
            n * k,  # dropout: a product with a mask
            n * k * k * 2,  # W
            n * k,  # times d^-1/2 of the source
            n * k,  # times d^-1/2 of the row
            n * k,  # bias
            n * k,  # relu
        ],
        "scatter": [(m + n) * k],  # every row is read along its edges, and by itself
        "reduce": [(m + n) * k],
    },
    "sage": {
        "vertex": [
            n * k,  # dropout
            n * k * k * 2,  # W_neigh
            n * k,  # times 1/d
            n * k,  # dropout, drawn again for the root
            n * k * k * 2,  # W_root
            n * k,  # its bias
            n * k,  # neighbours and root
            n * k,  # relu
        ],
        "scatter": [m * k],
        "reduce": [m * k],
    },
    "gin": {
        "vertex": [
            n * k,  # dropout
            n * k * k * 2,  # first map of the MLP
            n * k,  # its bias
            n * k,  # relu
            n * k * k * 2,  # second map
            n * k,  # its bias
            n * k,  # relu
        ],
        "scatter": [(m + n) * k],
        "reduce": [(m + n) * k],
    },
    "gcnii": {
        "vertex": [
            n * k,  # dropout
            n * k,  # times d^-1/2 of the source
            n * k,  # times d^-1/2 of the row
            n * k,  # mix with h0
            n * k * k * 2,  # W
            n * k,  # added to (1 - β) z
            n * k,  # relu
        ],
        "scatter": [(m + n) * k],
        "reduce": [(m + n) * k],
    },
    "resgcn": {
        "vertex": [
            n * k * 5,  # layer norm: sum; less the mean; square; sum; by the deviation
            n * k,  # its scale and shift
            n * k,  # relu
            n * k,  # dropout
            n * k * k * 2,  # W
            n * k,  # times d^-1/2 of the source
            n * k,  # times d^-1/2 of the row
            n * k,  # bias
            n * k,  # added to h
        ],
        "scatter": [(m + n) * k],
        "reduce": [(m + n) * k],
    },
    "gat": {  # edges and a loop a vertex: m + n
        "vertex": [
            n * k,  # dropout
            n * k * k * 2,  # W
            n * k,  # s ⊙ Wx
            n * k,  # summed over each head
            n * k,  # t ⊙ Wx
            n * k,  # summed over each head
            n * k,  # bias
            n * k,  # elu
        ],
        "scatter": [
            (m + n) * T,  # the source's score
            (m + n) * T,  # the row's score
            (m + n) * T,  # the row's largest
            (m + n) * T,  # the row's sum
            (m + n) * k,  # the source's Wx
        ],
        "edge": [
            (m + n) * T,  # sum of both scores
            (m + n) * T,  # leaky relu
            (m + n) * T,  # less the largest
            (m + n) * T,  # exponential
            (m + n) * T,  # by the sum
            (m + n) * k,  # times Wx
        ],
        "reduce": [
            (m + n) * T,  # the largest of a row
            (m + n) * T,  # the sum of a row
            (m + n) * k,  # messages
        ],
    },
}

# Of the chain from h to h', an operation each: log s for a sum of s numbers.
DEPTH = {
    "gcn": [1, 1 + log_k, 1, 1, log_d, 1, 1, 1],  # dropout, W, scale, read, sum, scale, bias, relu
    "sage": [1, 1 + log_k, 1, log_d, 1, 1, 1],  # dropout, W, read, sum, scale, add, relu
    "gin": [
        1,
        1,
        log_d,
        2 + log_k,
        1,
        2 + log_k,
        1,
    ],  # dropout, read, sum, W and bias, relu, W and bias, relu
    "gcnii": [1, 1, 1, log_d, 1, 1, 2 + log_k, 1],  # dropout, scale, read, sum, scale, mix, W and add, relu
    "gat": [
        1,  # dropout
        1 + log_k,  # W
        1,  # s ⊙ Wx
        log_k - log_T,  # summed over a head's k / T columns
        1,  # read by edges
        1,  # both ends
        1,  # leaky relu
        log_d,  # largest
        1,  # read by edges
        1,  # less it
        1,  # exponential
        log_d,  # sum
        1,  # read by edges
        1,  # by it
        1,  # times Wx
        log_d,  # sum of messages
        1,  # bias
        1,  # elu
    ],
}

# Backward: the products, and everything that crosses edges.
BACKWARD_PRODUCTS = {"gcn": 2, "sage": 4, "gin": 4, "gcnii": 2, "resgcn": 2, "gat": 2}


def first_layer(name, **keys):
    cost = cost_of_model(config(name, **keys), small_graph())
    return cost.layers[1], cost


def total(parts):
    return sum(parts, symbol("n") * 0)


@pytest.mark.parametrize("name", FORWARD)
def test_work_forward_is_the_count_by_hand(name):
    norm = "layer" if name == "resgcn" else "none"
    layer, cost = first_layer(name, norm=norm)
    for phase in ("scatter", "edge", "reduce", "vertex"):
        wanted = total(FORWARD[name].get(phase, []))
        assert layer.forward.by_phase(phase) == wanted, phase
        sizes = {"n": N, "m": E, "k": K, "T": 2}
        assert layer.forward.by_phase(phase).value(cost.values) == wanted.value(sizes)
    assert (cost.values["n"], cost.values["m"], cost.values["d"], cost.values["t"]) == (N, E, D, 3)


def test_numbers_by_hand():
    """GCN of width 8 on 6 vertices and 9 edges, without any symbol."""
    layer, cost = first_layer("gcn")
    assert layer.forward.by_kernel("GEMM").value(cost.values) == 2 * 6 * 8 * 8
    assert layer.forward.by_kernel("SpMM").value(cost.values) == (9 + 6) * 8 + (9 + 6) * 8
    assert layer.forward.by_kernel("elementwise").value(cost.values) == 5 * 6 * 8
    assert layer.forward.total_depth.value(cost.values) == 1 + 4 + 1 + 1 + math.log2(5) + 1 + 1 + 1
    assert layer.backward.by_kernel("GEMM").value(cost.values) == 2 * 2 * 6 * 8 * 8


@pytest.mark.parametrize("name", DEPTH)
def test_depth_forward_is_the_count_by_hand(name):
    layer, cost = first_layer(name)
    wanted = total(DEPTH[name])
    assert layer.forward.total_depth == wanted
    heads = {"T": 2} if name == "gat" else {}
    assert layer.forward.total_depth.value(cost.values) == pytest.approx(
        wanted.value({"k": K, "d": D, **heads, "T": 2})
    )


def test_backward_of_gcn_by_hand():
    """∂relu, then scale, pull, scale; ∂W and ∂x; ∂dropout. Bias: a sum over all rows."""
    layer, _ = first_layer("gcn")
    back = layer.backward
    assert back.by_kernel("GEMM") == n * k * k * 4
    assert back.by_phase("scatter") == back.by_phase("reduce") == (m + n) * k
    assert back.by_kernel("elementwise") == n * k * 5  # relu, scale, scale, sum for the bias, dropout
    assert back.total_depth == total([1, 1, 1, log_d, 1, 1 + log_k, 1])
    assert back.weights == total([1, 1, 1, log_d, 1, 1 + log_n])  # as far as W, whose sum is over the rows


@pytest.mark.parametrize("name", BACKWARD_PRODUCTS)
def test_backward_has_two_products_for_every_one_forward(name):
    norm = "layer" if name == "resgcn" else "none"
    layer, _ = first_layer(name, norm=norm)
    assert layer.backward.by_kernel("GEMM") == n * k * k * 2 * BACKWARD_PRODUCTS[name]
    assert layer.backward.by_kernel("GEMM") == layer.forward.by_kernel("GEMM") * 2


def test_ends_by_hand():
    """Features get no gradient, and training decodes labelled rows only."""
    cost = cost_of_model(config("gcn"), small_graph())
    encoder, decoder = cost.layers[0], cost.layers[-1]
    assert encoder.forward.total_work == n * F + n * F * k * 2 + n * k * 2  # dropout, W, bias, relu
    assert encoder.backward.by_kernel("GEMM") == n * F * k * 2
    assert encoder.backward.total_depth == 0 and encoder.backward.weights == log_n + 2  # relu, W
    assert decoder.forward.total_work == t * k + t * k * C * 2 + t * C  # dropout, W, bias
    assert decoder.backward.by_kernel("GEMM") == t * k * C * 4
    assert encoder.forward.total_depth == log_F + 4 and decoder.backward.total_depth == log_C + 2


def test_weighted_edges_cost_a_product_each():
    plain = cost_of_model(config("gcn"), small_graph()).layers[1].forward
    weighted = cost_of_model(config("gcn"), small_graph(weighted=True)).layers[1].forward
    assert weighted.by_phase("edge") == m * k and plain.by_phase("edge") == 0
    assert weighted.total_work == plain.total_work + m * k
    assert weighted.total_depth == plain.total_depth + 1


def test_sparse_features_cost_what_is_stored():
    graph = small_graph()
    x = SparseRows(torch.tensor([0, 2, 2, 3, 5, 5, 6]), torch.zeros(6, dtype=torch.int32), torch.ones(6), 7)
    cost = cost_of_model(config("gcn"), graph.replace(x=x))
    assert cost.layers[0].forward.by_kernel("GEMM") == z * k * 2
    assert cost.values["z"] == 6


def flops(model, graph):
    """What torch counts of the whole model, forward and backward."""
    model.train()
    model.check(graph)  # runs the model on a graph of its own
    for layer in model.all_layers():
        if isinstance(layer, Foreign):
            layer.strategy = None  # that of a part of a graph, which may add a vertex
    with FlopCounterMode(display=False) as counter:
        out = model(graph)
        forward = counter.get_total_flops()
        out.sum().backward()
    return forward, counter.get_total_flops() - forward


def products(cost):
    return [
        cost.sum(one.by_kernel("GEMM") for one in way).value(cost.values)
        for way in ([x.forward for x in cost.layers], [x.backward for x in cost.layers])
    ]


def all_labelled(graph):
    return graph.replace(y=torch.zeros_like(graph.y), train_mask=torch.ones_like(graph.train_mask))


@pytest.mark.parametrize("name", LAYER_TYPES)
def test_products_are_what_torch_counts(name):
    graph = all_labelled(tiny_graph())
    how = ModelConfig(name=name, num_layers=4, hidden=6, heads=2, dropout=0.3, norm="layer")
    assert products(cost_of_model(how, graph)) == [*flops(build_model(how, 7, 3).double(), graph)]


@pytest.mark.parametrize("kind", ["cat", "max", "sum"])
def test_products_of_jumping_knowledge_are_what_torch_counts(kind):
    graph = all_labelled(tiny_graph())
    how = ModelConfig(name="gcn", num_layers=5, hidden=6, jumping_knowledge=kind)
    assert products(cost_of_model(how, graph)) == [*flops(build_model(how, 7, 3).double(), graph)]


@pytest.mark.parametrize("name", CUSTOM)
def test_products_of_other_models_are_what_torch_counts(name):
    graph = all_labelled(tiny_graph(edge_features=2 if name == "gen+edges" else 0))
    model = build_oracle(name, graph)
    assert products(cost_of_model(model, graph)) == [*flops(model, graph)]


@pytest.mark.parametrize("name", LAYER_TYPES)
def test_symbols_and_widths_of_a_model_agree(name):
    """A configured model, counted with collision-free widths, costs what the built one does at its own."""
    graph = tiny_graph()
    how = ModelConfig(name=name, num_layers=2, hidden=12, heads=2, dropout=0.3, norm="layer")
    named, built = cost_of_model(how, graph), cost_of_model(build_model(how, 7, 3).double(), graph)
    for a, b in zip(named.layers, built.layers, strict=True):
        for x, y in ((a.forward, b.forward), (a.backward, b.backward)):
            assert x.total_work.value(named.values) == y.total_work.value(built.values)
            assert x.total_depth.value(named.values) == pytest.approx(y.total_depth.value(built.values))
            assert x.weights.value(named.values) == pytest.approx(y.weights.value(built.values))
        assert a.saved.value(named.values) == b.saved.value(built.values)
        assert (a.role, a.linear) == (b.role, b.linear)


def test_counting_leaves_the_model_alone():
    graph = tiny_graph()
    model = build_oracle("pyg", graph)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    strategies = [getattr(layer, "strategy", None) for layer in model.all_layers()]
    state = torch.get_rng_state()
    cost_of_model(model, graph)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert [getattr(layer, "strategy", None) for layer in model.all_layers()] == strategies
    assert torch.equal(torch.get_rng_state(), state)
