"""Classes of layers, read off what they compute."""

import warnings

import pytest
import torch
from analysis.counts import config, small_graph
from support.graphs import tiny_graph
from torch import nn

from gnnpar.analysis import cost_of_model
from gnnpar.model import GCN, Decoder, Encoder, Layer, LayerStack, Push
from gnnpar.model.edges import edge_softmax, edge_sum


def role_of(layer, width=6):
    graph = tiny_graph()
    model = LayerStack(Encoder(7, width), [layer], Decoder(6, 3)).double()
    return cost_of_model(model, graph).layers[1].role


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gcn", ("C-GNN", "local, global", "linear")),
        ("sage", ("C-GNN", "local, global", "linear")),
        ("gin", ("C-GNN", "local, global", "linear")),
        ("gcnii", ("C-GNN", "local, global", "linear")),
        ("resgcn", ("C-GNN", "local, global", "linear")),
        ("gat", ("A-GNN", "local, global", "linear")),
        ("gen", ("MP-GNN", "local", "-")),
    ],
)
def test_built_in_layers(name, wanted):
    layers = cost_of_model(config(name), small_graph()).layers
    assert layers[0].role is None and layers[-1].role is None
    for layer in layers[1:-1]:
        assert (layer.role.name, layer.role.formulation, layer.role.order) == wanted
    if name == "gat":
        assert layers[1].role.scores_from == ("source", "destination")


def mlp(width):
    return nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 6))


PYG = {
    "GCNConv": (lambda pyg: pyg.GCNConv(6, 6), "C-GNN"),
    "SAGEConv": (lambda pyg: pyg.SAGEConv(6, 6), "C-GNN"),
    "GINConv": (lambda pyg: pyg.GINConv(mlp(6)), "C-GNN"),
    "GATConv": (lambda pyg: pyg.GATConv(6, 3, heads=2), "A-GNN"),
    "GATv2Conv": (lambda pyg: pyg.GATv2Conv(6, 3, heads=2), "A-GNN"),
    "AGNNConv": (lambda pyg: pyg.AGNNConv(), "A-GNN"),
    "TransformerConv": (lambda pyg: pyg.TransformerConv(6, 3, heads=2), "A-GNN"),
    "EdgeConv": (lambda pyg: pyg.EdgeConv(mlp(12)), "MP-GNN"),
    "ResGatedGraphConv": (lambda pyg: pyg.ResGatedGraphConv(6, 6), "MP-GNN"),
}


@pytest.mark.parametrize("name", PYG)
def test_layers_of_pyg(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyG's import calls torch.jit.script
        import torch_geometric.nn as pyg
    make, wanted = PYG[name]
    assert role_of(make(pyg)).name == wanted


class Custom(Layer):
    operator = Push()

    def __init__(self, message):
        super().__init__()
        self.message = message
        self.linear = nn.Linear(6, 6)

    def aggregate(self, x, block, rows):
        source, row = x.index_select(0, block.columns), x.index_select(0, block.rows)
        return edge_sum(self.message(self.linear, source, row, block), block.rows, block.num_rows)


def scores(source, row, block):
    return edge_softmax((source * row).sum(1, keepdim=True), block.rows, block.num_rows)


@pytest.mark.parametrize(
    ("message", "wanted", "ends"),
    [
        (lambda w, source, row, block: source, "C-GNN", ()),
        (lambda w, source, row, block: source * torch.full((len(source), 1), 0.5).double(), "C-GNN", ()),
        (
            lambda w, source, row, block: source * scores(source, row, block),
            "A-GNN",
            ("source", "destination"),
        ),
        (lambda w, source, row, block: source * source.sum(1, keepdim=True), "A-GNN", ("source",)),
        (lambda w, source, row, block: row * scores(source, row, block), "MP-GNN", ()),
        (lambda w, source, row, block: torch.sigmoid(w(source) + row) * source, "MP-GNN", ()),
        (lambda w, source, row, block: torch.relu(w(source)), "MP-GNN", ()),
        (lambda w, source, row, block: source - row, "MP-GNN", ()),
    ],
)
def test_custom_layers_by_their_messages(message, wanted, ends):
    role = role_of(Custom(message))
    assert (role.name, role.scores_from) == (wanted, ends)


class Outside(Layer):
    """Sums its edges where torch cannot be watched."""

    operator = Push()

    def aggregate(self, x, block, rows):
        return _Outside.apply(x, block.rows, block.columns, block.num_rows)


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rows, columns, count):
        ctx.pairs, ctx.shape = (rows.numpy(), columns.numpy()), x.shape
        out = torch.zeros(count, x.shape[1], dtype=x.dtype)
        for row, column in zip(*ctx.pairs, strict=True):
            out.numpy()[row] += x.numpy()[column]
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.zeros(ctx.shape, dtype=gradient.dtype)
        for row, column in zip(*ctx.pairs, strict=True):
            out.numpy()[column] += gradient.numpy()[row]
        return out, None, None, None


def test_what_cannot_be_watched_is_unknown():
    role = role_of(Outside())
    assert (role.name, role.formulation, role.order) == ("unknown", "unknown", "unknown")


def test_layers_with_nothing_non_linear_between_them_are_a_polynomial():
    """SGC, as a stack: three hops, then an activation."""
    layers = [GCN(6, 6, activation=None), nn.Linear(6, 6), GCN(6, 6, activation=None), GCN(6, 6)]
    model = LayerStack(nn.Linear(7, 6), layers, nn.Linear(6, 3))
    orders = cost_of_model(model, small_graph()).orders()
    assert orders == ["", "polynomial, 2", "", "polynomial, 2", "linear", ""]
