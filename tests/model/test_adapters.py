"""PyG convolutions as layers: which are taken, which refused, and that parts give what the whole gives."""

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar.batch import ChunkedGraph, make_block
from gnnpar.errors import InputError, RunError
from gnnpar.model import GCNII, LayerStack, PyGConv, Rows, adapt, probe
from gnnpar.model.whole import WholeGraph

pyg = pytest.importorskip("torch_geometric.nn")

ACCEPTED = {
    "GCN": (lambda: pyg.GCNConv(8, 5), "padded"),
    "SAGE": (lambda: pyg.SAGEConv(8, 5), "bipartite"),
    "GAT": (lambda: pyg.GATConv(8, 4, heads=2), "bipartite"),
    "GIN": (lambda: pyg.GINConv(nn.Linear(8, 5), train_eps=True), "bipartite"),
    "Cheb, one hop": (lambda: pyg.ChebConv(8, 5, K=2), "padded"),
    "SG, one hop": (lambda: pyg.SGConv(8, 5, K=1), "padded"),
    "ClusterGCN": (lambda: pyg.ClusterGCNConv(8, 5), "square"),
    "EG": (lambda: pyg.EGConv(8, 8), "counted"),
    "Transformer": (lambda: pyg.TransformerConv(8, 5), "bipartite"),
}

REFUSED = {
    "Cheb": (lambda: pyg.ChebConv(8, 5, K=3), "reads more than one hop .*: use K layers"),
    "TAG": (lambda: pyg.TAGConv(8, 5, K=2), "reads more than one hop"),
    "SG": (lambda: pyg.SGConv(8, 5, K=2), "reads more than one hop"),
    "GatedGraph": (lambda: pyg.GatedGraphConv(8, num_layers=2), "reads more than one hop"),
    "GPS": (lambda: pyg.GPSConv(8, pyg.SAGEConv(8, 8)), "no edge from"),
    "Dir": (lambda: pyg.DirGNNConv(pyg.SAGEConv(8, 5)), "out-going edges"),
    "backwards": (lambda: pyg.SAGEConv(8, 5, flow="target_to_source"), "out-going edges"),
    "cached": (lambda: pyg.GCNConv(8, 5, cached=True), "use cached=False"),
    "lazy": (lambda: pyg.SAGEConv(-1, 5), "give the width"),
    "positions": (lambda: pyg.PointNetConv(), "wants 'pos'"),
    "types": (lambda: pyg.RGCNConv(8, 5, num_relations=2), "type of every edge"),
    "heterogeneous": (lambda: pyg.HypergraphConv(8, 5), "does not take x and edge_index"),
    "pair": (lambda: ReturnsPair(), "returns a tuple"),
    "edges in groups of four": (lambda: pyg.MeshCNNConv(8, 5), "cannot run"),
    "as long as the largest degree": (lambda: pyg.SAGEConv(8, 5, aggr="lstm"), "largest degree"),
}


class ReturnsPair(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x), x


def gradients(layer, x, parts, graph):
    """Result and gradients over parts `(block, columns)` of the graph."""
    x = x.clone().requires_grad_()
    rows = [Rows(block.row_ids, 1, 2, 3, training=False) for block, _ in parts]
    out = torch.cat(
        [layer.aggregate(x[columns], block, r) for (block, columns), r in zip(parts, rows, strict=True)]
    )
    target = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    wanted = [x, *layer.parameters()]
    return [out.detach(), *torch.autograd.grad((out * target).sum(), wanted)]


def cut(graph, offsets=(0, 9, 17, 30, 40)):
    chunked = ChunkedGraph(graph, offsets)
    return [make_block(chunked, chunk, graph.indptr, graph.indices, None) for chunk in chunked.chunks]


@pytest.mark.parametrize("name", ACCEPTED)
def test_parts_give_what_the_module_gives_on_the_whole(name):
    """On a graph other than that of the probe, against the bare module."""
    make, strategy = ACCEPTED[name]
    torch.manual_seed(0)
    conv = make()
    layer = probe(conv, 8).double()
    assert layer.strategy == strategy
    graph = tiny_graph()
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    found = gradients(layer, x, cut(graph), graph)
    torch.testing.assert_close(found[0], conv(x, graph.edge_index), rtol=0, atol=1e-12)
    whole = [(WholeGraph(graph).block, torch.arange(graph.num_nodes))]
    for a, b in zip(found, gradients(layer, x, whole, graph), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["GCN", "SG, one hop", "SAGE"])
def test_edge_weights_are_passed(name):
    conv = ACCEPTED[name][0]().double()
    layer = probe(conv, edge_weight=True)
    graph = tiny_graph(weighted=True)
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    weights = {} if name == "SAGE" else {"edge_weight": graph.edge_weight}
    expected = conv(x, graph.edge_index, **weights)
    torch.testing.assert_close(gradients(layer, x, cut(graph), graph)[0], expected, rtol=0, atol=1e-12)


def test_edge_features_are_passed():
    conv = pyg.GATConv(8, 5, edge_dim=3).double()
    layer = probe(conv, edge_features=3)
    graph = tiny_graph()
    graph = graph.replace(edge_attr=torch.rand(graph.num_edges, 3, dtype=torch.float64))
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    expected = conv(x, graph.edge_index, graph.edge_attr)
    torch.testing.assert_close(gradients(layer, x, cut(graph), graph)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_give_the_reason(name):
    make, reason = REFUSED[name]
    with pytest.raises(InputError, match=reason):
        probe(make(), 8)


def test_the_probe_leaves_the_module_as_it_was():
    conv = pyg.GENConv(8, 8)
    before = {name: value.clone() for name, value in conv.state_dict().items()}
    probe(conv)
    after = conv.state_dict()
    assert conv.training
    assert all(torch.equal(after[name], value) for name, value in before.items() if name in after)
    assert all(p.grad is None for p in conv.parameters())


def test_stored_self_loops_are_told_from_added_ones():
    """A part does not show whether a neighbour has a loop, on which `GCNConv`'s normalisation depends."""
    plain = tiny_graph()
    loops = torch.tensor([[0, 9, 20], [0, 9, 20]])
    graph = plain.from_edge_index(torch.cat([plain.edge_index, loops], 1), x=plain.x)
    stack = LayerStack(nn.Linear(7, 8), [pyg.GCNConv(8, 8), pyg.SAGEConv(8, 8)], nn.Linear(8, 3))
    (fault,) = stack.check(graph)
    assert fault.startswith("layers.0 (GCNConv)")
    assert "remove the graph's self loops" in fault
    assert stack.check(plain) == []


def test_a_stack_lists_every_refused_layer():
    layers = [pyg.TAGConv(8, 8), pyg.SAGEConv(8, 8), pyg.ChebConv(8, 8, K=3)]
    faults = LayerStack(nn.Linear(7, 8), layers, nn.Linear(8, 3)).check(tiny_graph())
    assert [fault.partition(":")[0] for fault in faults] == ["layers.0 (TAGConv)", "layers.2 (ChebConv)"]
    with pytest.raises(InputError, match="2 faults"):
        LayerStack(nn.Linear(7, 8), [pyg.GCNConv(-1, 8), pyg.PointNetConv()], nn.Linear(8, 3))


def test_an_unprobed_layer_does_not_run_on_a_part():
    layer = adapt(pyg.SAGEConv(8, 8)).double()
    graph = tiny_graph()
    with pytest.raises(RunError, match="has not been probed"):
        gradients(layer, torch.randn(40, 8, dtype=torch.float64), cut(graph), graph)


def test_initial_representation_is_the_encoder_output():
    """PyG's GCNII convolution inside a stack equals ours."""
    torch.manual_seed(0)
    graph = tiny_graph()
    theirs = pyg.GCN2Conv(8, alpha=0.2, theta=0.7, layer=2)
    ours = GCNII(8, 2, alpha=0.2, theta=0.7)
    ours.weight = theirs.weight1
    encoder, decoder = nn.Linear(7, 8), nn.Linear(8, 3)
    foreign = LayerStack(encoder, [nn.Tanh(), theirs, nn.ReLU()], decoder).double()
    own = LayerStack(encoder, [nn.Tanh(), ours], decoder).double()
    torch.testing.assert_close(foreign(graph), own(graph), rtol=0, atol=1e-12)
    split = [1] * len(foreign.all_layers())
    assert [s.name for s in foreign.payloads(graph, split)[1, 2]] == ["h", "h0"]


def test_foreign_randomness_is_keyed_and_contained():
    torch.manual_seed(0)
    graph = tiny_graph()
    layer = probe(pyg.GATConv(8, 4, heads=2, dropout=0.5)).double()
    x = torch.randn(40, 8, dtype=torch.float64)
    block, columns = cut(graph)[1]
    state = torch.random.get_rng_state()

    def run(seed=1, step=2, position=3, part=(block, columns), **keys):
        rows = Rows(part[0].row_ids, seed, step, position, training=True, **keys)
        return layer.aggregate(x[part[1]], part[0], rows)

    assert torch.equal(run(), run(recomputing=True))
    for other in (run(seed=2), run(step=3), run(position=4)):
        assert not torch.equal(run(), other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_foreign_batch_norm_is_deferred():
    graph = tiny_graph()
    layer = probe(pyg.GENConv(8, 8)).double()
    assert layer.chunk_dependent
    (norm,) = [m for m in layer.modules() if hasattr(m, "running_mean")]
    x = torch.randn(40, 8, dtype=torch.float64)
    start = norm.running_mean.clone()
    for recomputing in (False, True):
        for block, columns in cut(graph):
            rows = Rows(block.row_ids, 1, 2, 3, training=True, recomputing=recomputing)
            layer.aggregate(x[columns], block, rows)
    assert torch.equal(norm.running_mean, start)
    layer.commit()
    after = norm.running_mean.clone()
    assert not torch.equal(after, start)
    reference = nn.BatchNorm1d(16).double()
    bare = pyg.GENConv(8, 8).double()
    bare.load_state_dict(
        {k: v for k, v in layer.foreign.state_dict().items() if "running" not in k}, strict=False
    )
    bare.mlp[1] = nn.Identity()
    hidden = []
    bare.mlp[0].register_forward_hook(lambda module, inputs, out: hidden.append(out))
    bare.train()(x, graph.edge_index)
    reference(hidden[0])
    torch.testing.assert_close(after, reference.running_mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(norm.running_var, reference.running_var, rtol=0, atol=1e-12)


def test_wrappers_are_pyg_layers():
    assert isinstance(adapt(pyg.SAGEConv(8, 8)), PyGConv)
