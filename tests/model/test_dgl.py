"""DGL convolutions as layers."""

import sys

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar.batch import ChunkedGraph, make_block
from gnnpar.errors import InputError
from gnnpar.interop.dgl import import_dgl
from gnnpar.model import GCNII, DGLConv, LayerStack, Rows, probe

try:
    dgl = import_dgl()
except InputError:
    pytest.skip("dgl is not installed", allow_module_level=True)

CASES = {
    "GraphConv": (lambda: dgl.nn.GraphConv(8, 5, allow_zero_in_degree=True), "counted"),
    "SAGE": (lambda: dgl.nn.SAGEConv(8, 5, "mean"), "bipartite"),
    "GAT": (lambda: dgl.nn.GATConv(8, 4, 2, allow_zero_in_degree=True), "bipartite"),
    "GIN": (lambda: dgl.nn.GINConv(nn.Linear(8, 5)), "bipartite"),
    "SG": (lambda: dgl.nn.SGConv(8, 5, k=1, allow_zero_in_degree=True), "counted"),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_give_what_the_module_gives_on_the_whole(name):
    make, strategy = CASES[name]
    torch.manual_seed(0)
    conv = make()
    layer = probe(conv, 8).double()
    assert layer.strategy == strategy
    graph = tiny_graph()
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    chunked = ChunkedGraph(graph, (0, 9, 17, 30, 40))
    found = []
    for chunk in chunked.chunks:
        block, columns = make_block(chunked, chunk, graph.indptr, graph.indices, None)
        found.append(layer.aggregate(x[columns], block, Rows(block.row_ids, 0, 0, 1, training=False)))
    whole = dgl.graph(tuple(graph.edge_index), num_nodes=graph.num_nodes)
    torch.testing.assert_close(torch.cat(found), conv(whole, x).flatten(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: dgl.nn.TAGConv(8, 5, k=2), "reads more than one hop"),
        (lambda: dgl.nn.ChebConv(8, 5, k=3), "reads more than one hop"),
        (lambda: dgl.nn.RelGraphConv(8, 5, 3), "wants 'etypes'"),
        (lambda: dgl.nn.EGATConv(8, 3, 8, 3, 2), "does not take a graph and one feature matrix"),
    ],
)
def test_refusals_give_the_reason(make, reason):
    with pytest.raises(InputError, match=reason):
        probe(make(), 8)


def test_initial_representation_is_the_encoder_output():
    """DGL's GCNII convolution inside a stack equals ours, on a graph that has its self loops stored."""
    torch.manual_seed(0)
    plain = tiny_graph(directed=False)
    loops = torch.arange(plain.num_nodes).repeat(2, 1)
    looped = plain.from_edge_index(torch.cat([plain.edge_index, loops], 1), x=plain.x)
    theirs = dgl.nn.GCN2Conv(8, layer=2, alpha=0.2, lambda_=0.7, bias=False)
    ours = GCNII(8, 2, alpha=0.2, theta=0.7)
    ours.weight = theirs.weight1
    encoder, decoder = nn.Linear(7, 8), nn.Linear(8, 3)
    foreign = LayerStack(encoder, [nn.Tanh(), theirs, nn.ReLU()], decoder).double()
    own = LayerStack(encoder, [nn.Tanh(), ours], decoder).double()
    assert isinstance(foreign.layers[1], DGLConv)
    torch.testing.assert_close(foreign(looped), own(plain), rtol=0, atol=1e-12)


def test_the_guard_leaves_no_trace_in_the_environment():
    import os

    assert "DGLBACKEND" not in os.environ
    assert import_dgl() is sys.modules["dgl"]
