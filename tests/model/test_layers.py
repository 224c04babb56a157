"""Every layer against its formula in dense matrices, and against PyG: results and gradients."""

import pytest
import torch
from model import dense
from support.graphs import tiny_graph

from gnnpar.batch import ChunkedGraph, make_block
from gnnpar.model import GAT, GCN, GCNII, GEN, GIN, GraphSAGE, PreActivation, Push, ResGCNPlus, Rows
from gnnpar.model.whole import WholeGraph, apply_layer

WIDTH = 7

CASES = {
    "gcn": (lambda p: GCN(WIDTH, 5, dropout=p), dense.gcn),
    "gcn, widening": (lambda p: GCN(WIDTH, 9, dropout=p), dense.gcn),
    "sage": (lambda p: GraphSAGE(WIDTH, 5, dropout=p), dense.sage),
    "sage, widening": (lambda p: GraphSAGE(WIDTH, 9, dropout=p), dense.sage),
    "gin": (lambda p: GIN(WIDTH, 5, dropout=p), dense.gin),
    "gin, eps": (lambda p: GIN(WIDTH, 5, eps=0.3, dropout=p), dense.gin),
    "gcnii": (lambda p: GCNII(WIDTH, 3, alpha=0.2, theta=0.7, dropout=p), dense.gcnii),
    "resgcn": (lambda p: ResGCNPlus(WIDTH, dropout=p), dense.resgcn),
    "gat": (lambda p: GAT(WIDTH, 4, heads=2, dropout=p, attention_dropout=p / 2), dense.gat),
    "gen": (lambda p: GEN(WIDTH, 5, t=1.3, learn_t=True, dropout=p), dense.gen),
    "gen, message norm": (lambda p: GEN(WIDTH, 5, message_norm=True, dropout=p), dense.gen),
}


def run(layer, function, graph, training):
    """Result and gradients of `function(layer, h, graph, rows, carries)`."""
    draw = torch.Generator().manual_seed(4)
    h = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64, generator=draw).requires_grad_()
    h0 = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64, generator=draw).requires_grad_()
    rows = Rows(graph.node_ids, seed=5, step=6, layer=2, training=training)
    out = function(layer, h, graph, rows, {"h0": h0})
    wanted = [h, *([h0] if layer.reads else []), *layer.parameters()]
    target = torch.randn(out.shape, dtype=torch.float64, generator=draw)
    return [out.detach(), *torch.autograd.grad((out * target).sum(), wanted)]


def ours(layer, h, graph, rows, carries):
    return apply_layer(layer, h, carries, rows, WholeGraph(graph))[0]


def assert_same(found, expected):
    largest = max(float(e.abs().max()) for e in expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert float((a - b).abs().max()) <= 1e-12 * largest


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", CASES)
def test_layer_equals_its_formula(name, graph, training):
    torch.manual_seed(0)
    make, formula = CASES[name]
    layer = make(0.4).double()
    assert_same(run(layer, ours, graph, training), run(layer, formula, graph, training))


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gcnii", "resgcn"])
def test_pull_layers_use_edge_weights(name, weighted_graph):
    torch.manual_seed(0)
    make, formula = CASES[name]
    layer = make(0.4).double()
    found = run(layer, ours, weighted_graph, True)
    assert_same(found, run(layer, formula, weighted_graph, True))
    unweighted = run(layer, ours, weighted_graph.replace(edge_weight=None), True)
    assert float((found[0] - unweighted[0]).abs().max()) > 1e-3


def test_dropout_masks_differ_between_steps_and_layers(graph):
    layer = GCN(WIDTH, 5, dropout=0.5).double()
    h = torch.ones(graph.num_nodes, WIDTH, dtype=torch.float64)
    keys = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    cuts = [layer.before(h, {}, Rows(graph.node_ids, *key, training=True)) for key in keys]
    for i in range(len(cuts)):
        for other in cuts[i + 1 :]:
            assert not torch.equal(cuts[i], other)


def pyg_cases():
    pyg = pytest.importorskip("torch_geometric.nn")
    sequential = torch.nn.Sequential
    gcn, ours_gcn = pyg.GCNConv(WIDTH, 5), GCN(WIDTH, 5, activation=None)
    ours_gcn.linear.weight, ours_gcn.bias = gcn.lin.weight, gcn.bias
    sage, ours_sage = pyg.SAGEConv(WIDTH, 5), GraphSAGE(WIDTH, 5, activation=None)
    ours_sage.neigh.weight, ours_sage.root.weight = sage.lin_l.weight, sage.lin_r.weight
    ours_sage.root.bias = sage.lin_l.bias
    ours_gin = GIN(WIDTH, 5, eps=0.2, activation=None)
    gin = pyg.GINConv(sequential(ours_gin.inner, torch.nn.ReLU(), ours_gin.outer), eps=0.2)
    gat, ours_gat = pyg.GATConv(WIDTH, 4, heads=3), GAT(WIDTH, 4, heads=3, activation=None)
    ours_gat.linear.weight, ours_gat.bias = gat.lin.weight, gat.bias
    ours_gat.source.data, ours_gat.destination.data = gat.att_src[0].data, gat.att_dst[0].data
    gen = pyg.GENConv(WIDTH, WIDTH, norm=None, t=0.7, bias=True)
    ours_gen = GEN(WIDTH, WIDTH, norm=None, t=0.7)
    ours_gen.inner, ours_gen.outer = gen.mlp[0], gen.mlp[-1]
    return {
        "GCN": (gcn, ours_gcn),
        "SAGE": (sage, ours_sage),
        "GIN": (gin, ours_gin),
        "GAT": (gat, ours_gat),
        "GEN": (gen, ours_gen),
    }


@pytest.mark.parametrize("name", ["GCN", "SAGE", "GIN", "GAT", "GEN"])
@pytest.mark.parametrize("directed", [True, False])
def test_layer_equals_pyg(name, directed):
    torch.manual_seed(0)
    conv, layer = pyg_cases()[name]
    conv, layer = conv.double(), layer.double()
    graph = tiny_graph(directed)
    h = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64)
    rows = Rows(graph.node_ids, 0, 0, 1, training=False)
    found, _ = apply_layer(layer, h, {}, rows, WholeGraph(graph))
    torch.testing.assert_close(found, conv(h, graph.edge_index), rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("make", [CASES["gat"][0], CASES["gen"][0]], ids=["gat", "gen"])
def test_push_layers_give_the_same_on_blocks(make, graph, training):
    """Attention dropout included: it is keyed by vertices, not by where an edge lies."""
    torch.manual_seed(0)
    layer = make(0.4).double()
    assert isinstance(layer.operator, Push)
    x = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64)
    rows = Rows(graph.node_ids, 1, 2, 3, training)
    cut = layer.before(x, {}, rows)
    expected = layer.aggregate(cut, WholeGraph(graph).block, rows)
    chunked = ChunkedGraph(graph, (0, 9, 17, 30, graph.num_nodes))
    for chunk in chunked.chunks:
        block, columns = make_block(chunked, chunk, graph.indptr, graph.indices, None)
        part = layer.aggregate(cut[columns], block, Rows(block.row_ids, 1, 2, 3, training))
        torch.testing.assert_close(part, expected[chunk.start : chunk.stop], rtol=0, atol=1e-12)


def test_gen_adds_edge_features():
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    graph = tiny_graph()
    graph = graph.replace(edge_attr=torch.rand(graph.num_edges, 3, dtype=torch.float64))
    layer = GEN(WIDTH, WIDTH, norm=None, edge_features=3).double()
    conv = pyg.GENConv(WIDTH, WIDTH, norm=None, edge_dim=3, bias=True).double()
    conv.lin_edge, conv.mlp[0], conv.mlp[-1] = layer.edge, layer.inner, layer.outer
    h = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64)
    found, _ = apply_layer(layer, h, {}, Rows(graph.node_ids, 0, 0, 1, False), WholeGraph(graph))
    torch.testing.assert_close(found, conv(h, graph.edge_index, graph.edge_attr), rtol=0, atol=1e-12)


def test_pre_activation_recomputes_the_input_of_its_layer(graph):
    """An inner layer that reads its input sees the activated rows, and running statistics count them once."""
    torch.manual_seed(0)
    inner = GraphSAGE(WIDTH, WIDTH, activation=None)
    block = PreActivation(inner, WIDTH, norm="batch", dropout=0.3).double()
    h = torch.randn(graph.num_nodes, WIDTH, dtype=torch.float64)
    rows = Rows(graph.node_ids, 1, 2, 3, training=True)
    found, _ = apply_layer(block, h, {}, rows, WholeGraph(graph))
    batch = torch.nn.BatchNorm1d(WIDTH).double()
    x = dense.dropout(torch.relu(batch(h)), graph, rows, 0.3, site=2)
    expected = h + dense.mean(graph) @ x @ inner.neigh.weight.T + dense.linear(x, inner.root)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    block.commit()
    torch.testing.assert_close(block.norm.running_mean, batch.running_mean)
    torch.testing.assert_close(block.norm.running_var, batch.running_var)
