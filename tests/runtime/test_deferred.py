"""Backward in two halves: input gradients at once, weight gradients later, together equal to autograd's."""

import copy

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from torch import nn
from torch.nn import functional as F

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import MemoryConfig
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.runtime import build_stage
from gnnpar.runtime import deferred as deferred_module
from gnnpar.runtime.deferred import DeferredWeights, add_weight_gradients
from gnnpar.train.job import make_model

ROWS, WIDTH = 5, 4


class Map(nn.Module):
    """A square weight and a bias, used as `run(module, x)` says."""

    def __init__(self, run):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.run = run

    def forward(self, x):
        return self.run(self, x)


class Gated(nn.Module):
    """A custom module: two maps, a scale, and a non-linear product between them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) * self.value(x.tanh()) * self.scale


class Tied(nn.Module):
    """One weight used three times, from both sides, and through a transpose that autograd sees."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return F.linear((x @ self.weight).tanh(), self.weight).tanh() @ self.weight.t()


class LowRank(nn.Module):
    """A weight that is itself a product of parameters."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Parameter(torch.randn(WIDTH, 2)), nn.Parameter(torch.randn(2, WIDTH))

    def forward(self, x):
        return x @ (self.left @ self.right)


class Heads(nn.Module):
    """Rows of more than one dimension: left to autograd."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x.view(ROWS, 2, 2)).flatten(1)


MODULES = {
    "linear": lambda: nn.Linear(WIDTH, 3),
    "linear without bias": lambda: nn.Linear(WIDTH, 3, bias=False),
    "functional linear": lambda: Map(lambda m, x: F.linear(x, m.weight, m.bias)),
    "computed bias": lambda: Map(lambda m, x: F.linear(x, m.weight, m.bias * 2)),
    "@": lambda: Map(lambda m, x: x @ m.weight + m.bias),
    "matmul": lambda: Map(lambda m, x: torch.matmul(x, m.weight)),
    "Tensor.matmul": lambda: Map(lambda m, x: x.matmul(m.weight)),
    "mm": lambda: Map(lambda m, x: torch.mm(x, m.weight)),
    "Tensor.mm": lambda: Map(lambda m, x: x.mm(m.weight)),
    "addmm": lambda: Map(lambda m, x: torch.addmm(x.sin(), x, m.weight, beta=0.3, alpha=0.7)),
    "Tensor.addmm": lambda: Map(lambda m, x: x.sin().addmm(x, m.weight, beta=-2.0)),
    "addmm onto a bias": lambda: Map(lambda m, x: torch.addmm(m.bias, x, m.weight, alpha=0.5)),
    "custom": Gated,
    "tied": Tied,
    "low rank": LowRank,
    "heads": Heads,
    "sequence": lambda: nn.Sequential(
        nn.Linear(WIDTH, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh(), Map2(6)
    ),
}

DEFERS_NOTHING = {"addmm onto a bias", "heads"}


class Map2(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 3))

    def forward(self, x):
        return x @ self.weight


def made(name):
    torch.manual_seed(2)
    return MODULES[name]().double()


def inputs(number, needs_grad=True):
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(ROWS, WIDTH, generator=draw, dtype=torch.float64).requires_grad_(needs_grad)
    return x, torch.Generator().manual_seed(number + 100)


def loss_of(out, draw):
    return (out.sin() * torch.randn(out.shape, generator=draw, dtype=torch.float64)).sum()


def autograd(module, xs):
    """Gradients of the summed loss: of the parameters, and of each x."""
    module = copy.deepcopy(module)
    for x, draw in xs:
        loss_of(module(x), draw).backward()
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}, [x.grad for x, _ in xs]


def assert_equal(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def parameters_of(module):
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("num_batches", [1, 3])
@pytest.mark.parametrize("name", MODULES)
def test_both_halves_together_are_autograd(name, num_batches, needs_grad):
    module = made(name)
    wanted, of_inputs = autograd(module, [inputs(i, needs_grad) for i in range(num_batches)])
    pending, xs = [], [inputs(i, needs_grad) for i in range(num_batches)]
    for x, draw in xs:
        with DeferredWeights(pending):
            loss = loss_of(module(x), draw)
        loss.backward()
    for (x, _), gradient in zip(xs, of_inputs, strict=True):  # complete before any weight's is
        assert (x.grad is None) == (gradient is None)
        if gradient is not None:
            assert_equal(x.grad, gradient)
    late = {id(one.parameter) for one in pending}
    assert bool(late) is (name not in DEFERS_NOTHING)
    add_weight_gradients(pending)
    found = parameters_of(module)
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        assert_equal(found[key], gradient)


@pytest.mark.parametrize("name", sorted(MODULES.keys() - DEFERS_NOTHING - {"tied"}))
def test_a_deferred_weight_has_no_gradient_before_its_own_half(name):
    module, (x, draw), pending = made(name), inputs(0), []
    with DeferredWeights(pending):
        loss = loss_of(module(x), draw)
    loss.backward()
    late = {id(one.parameter) for one in pending}
    for key, p in module.named_parameters():
        assert (id(p) in late) == (p.grad is None) or p.grad is None, key
        assert id(p) not in late or p.grad is None, key


def test_weights_of_several_micro_batches_are_one_product(monkeypatch):
    module, pending = made("custom"), []
    for number in range(4):
        x, draw = inputs(number)
        with DeferredWeights(pending):
            loss = loss_of(module(x), draw)
        loss.backward()
    joined = []
    real = deferred_module._joined
    monkeypatch.setattr(deferred_module, "_joined", lambda parts: joined.append(len(parts)) or real(parts))
    add_weight_gradients(pending)
    # Two weights: left and right of each; one bias.
    assert joined == [4] * 5


def test_gradients_add_to_what_is_there():
    module, (x, draw), pending = made("linear"), inputs(0), []
    wanted, _ = autograd(module, [inputs(0)])
    module.weight.grad = torch.ones_like(module.weight)
    with DeferredWeights(pending):
        loss = loss_of(module(x), draw)
    loss.backward()
    add_weight_gradients(pending)
    assert_equal(module.weight.grad, wanted["weight"] + 1)
    assert_equal(module.bias.grad, wanted["bias"])


def test_a_frozen_parameter_gets_none():
    module, (x, draw), pending = made("linear"), inputs(0), []
    module.bias.requires_grad_(False)
    with DeferredWeights(pending):
        loss = loss_of(module(x), draw)
    loss.backward()
    add_weight_gradients(pending)
    assert module.bias.grad is None and module.weight.grad is not None
    assert_equal(module.weight.grad, autograd(made("linear"), [inputs(0)])[0]["weight"])


def test_without_gradients_nothing_is_deferred():
    module, (x, _), pending = made("linear"), inputs(0), []
    with torch.no_grad(), DeferredWeights(pending):
        out = module(x)
    assert not pending and not out.requires_grad and torch.equal(out, made("linear")(x).detach())


def serial(model, graph, step=0):
    """Gradients of the whole model on the whole graph, by autograd."""
    model = copy.deepcopy(model)
    model.train()
    wanted = (graph.y >= 0) & graph.train_mask
    F.cross_entropy(model(graph, seed=0, step=step)[wanted], graph.y[wanted]).backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}


def assert_same_gradients(model, wanted):
    largest = max(float(g.abs().max()) for g in wanted.values())
    for name, p in model.named_parameters():
        found = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(found, wanted[name], rtol=0, atol=1e-12 * largest, msg=name)


def built(layer, recompute, chunked: ChunkedGraph, **model):
    config = make_config(
        {"name": layer, "heads": 2, "attention_dropout": 0.2, "norm": "layer"} | model,
        memory=MemoryConfig(recompute=recompute),
    )
    network = make_model(config, chunked.graph).double()
    stage = build_stage(network, chunked, range(len(network.all_layers())), 1, config, torch.device("cpu"))
    return network, stage


LAYERS = ["gcn", "sage", "gin", "gat", "gcnii", "resgcn", "gen"]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_type_in_one_slot(layer, recompute):
    chunked = chunked_graph(4)
    model, stage = built(layer, recompute, chunked)
    wanted = serial(model, chunked.graph)
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1).exact
    slot = reads.slots[0]
    stage.forward(slot, {}, reads, 0, split=True)
    stage.backward(slot, {}, reads, 0)
    assert any(p.grad is None for p in model.parameters())  # the weights are still to come
    stage.weight_gradients(slot)
    assert_same_gradients(model, wanted)
    assert not any(stage._pending.values())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_weights_of_all_clusters_at_the_end(layer, recompute):
    chunked = chunked_graph(4).isolated
    model, stage = built(layer, recompute, chunked)
    wanted = serial(model, chunked.graph)
    reads = ReadsPlanner(chunked, HistoryPolicy("drop", 1, 0.0, 0), 1).plan(0, (2, 0, 3, 1))
    assert len(reads.slots) == 4
    for slot in reads.slots:
        stage.forward(slot, {}, reads, 0, split=True)
    for slot in reads.slots:  # first in, first out: nothing crosses clusters
        stage.backward(slot, {}, reads, 0)
    stage.weight_gradients(chunked.chunks[:3])
    stage.weight_gradients(chunked.chunks[3:])
    assert_same_gradients(model, wanted)
