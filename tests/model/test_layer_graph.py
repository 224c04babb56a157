"""`LayerGraph`: branches against dense algebra, their names, faults."""

import copy
import pickle

import pytest
import torch
from model import dense
from model.branching import P, jumping, towers
from support.graphs import tiny_graph
from torch import nn

from gnnpar.errors import InputError
from gnnpar.model import (
    GCN,
    GCNII,
    Branch,
    Layer,
    LayerGraph,
    LayerStack,
    Push,
    Rows,
)


class Relation(Layer):
    """Mean over the in-edges of one relation, which the edge features say: one column each."""

    operator = Push()

    def __init__(self, width, relation):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.relation = relation

    def before(self, h, carries, rows):
        return self.linear(h)

    def aggregate(self, x, block, rows):
        here = block.edge_attr[:, self.relation, None]
        total, count = x.new_zeros(block.num_rows, x.shape[1]), x.new_zeros(block.num_rows, 1)
        total = total.index_add(0, block.rows, here * x[block.columns])
        return total / count.index_add(0, block.rows, here).clamp_min(1)


def rows(graph, layer, training=True, seed=4, step=2):
    return Rows(graph.node_ids, seed, step, layer, training)


def gradients(model, logits):
    (logits * torch.arange(1.0, logits.numel() + 1).view_as(logits)).sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def agree(model, graph, wanted):
    """Logits and gradients, given the dense ones `wanted()`."""
    logits = model(graph, seed=4, step=2)
    expected = wanted()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    ours, theirs = gradients(model, logits), gradients(model, expected)
    largest = max(float(g.abs().max()) for g in theirs.values())
    assert largest > 0
    for name, g in theirs.items():
        assert float(g.abs().max()) > 0, name
        torch.testing.assert_close(ours[name], g, rtol=0, atol=1e-12 * largest, msg=name)


JOINS = {
    "cat": lambda a, b: torch.cat([a, b], 1),
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: (a + b) / 2,
    "max": torch.maximum,
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("join", JOINS)
def test_two_towers_are_dense_algebra(join, sparse):
    given = tiny_graph(sparse=sparse)
    graph = given.replace(x=given.x.to_dense()) if sparse else given
    model = towers(join, 12 if join == "cat" else 6).train()
    assert model.layer_names() == [
        "branches.near.0",
        "branches.near.1",
        "branches.far.join",
        "branches.far.0",
        "branches.far.1",
        "branches.far.2",
        "branches.tail.join",
        "branches.tail.0",
        "decoder",
    ]
    near, far, tail = (model.branches[name] for name in ("near", "far", "tail"))

    def wanted():
        a = dense.linear(graph.x, near["0"].module)
        a = dense.gcn(near["1"], a, graph, rows(graph, 1), {})
        b = dense.linear(graph.x, far["0"].module)
        b = dense.gat(far["1"], b, graph, rows(graph, 4), {})
        b = dense.gcn(far["2"], b, graph, rows(graph, 5), {})
        h = dense.gcn(tail["0"], JOINS[join](a, b), graph, rows(graph, 7), {})
        return dense.linear(h, model.decoder.module)

    agree(model, given, wanted)


def test_relations_add_up():
    """A relational layer: its own rows, and the mean over each relation's neighbours."""
    graph = tiny_graph(edge_features=2)
    kind = torch.arange(graph.num_edges) % 3 == 0
    graph = graph.replace(edge_attr=torch.stack([kind, ~kind], 1).double())
    torch.manual_seed(0)
    model = LayerGraph(
        {
            "own": Branch([nn.Linear(6, 6)]),
            "cites": Branch([Relation(6, 0)]),
            "writes": Branch([Relation(6, 1)]),
            "all": Branch([nn.Tanh()], inputs=("own", "cites", "writes"), join="sum"),
        },
        encoder=nn.Linear(7, 6),
        decoder=nn.Linear(6, 3),
    ).double()
    assert model.check(graph) == []
    own, cites, writes = (model.branches[name]["0"] for name in ("own", "cites", "writes"))

    def wanted():
        h = dense.linear(graph.x, model.encoder.module)
        total = dense.linear(h, own.module)
        for conv, mask in ((cites, kind), (writes, ~kind)):
            a = torch.zeros(graph.num_nodes, graph.num_nodes).double()
            source, target = graph.edge_index
            a[target[mask], source[mask]] = 1.0
            total = total + a / a.sum(1, keepdim=True).clamp_min(1) @ dense.linear(h, conv.linear)
        return dense.linear(torch.tanh(total), model.decoder.module)

    agree(model, graph, wanted)


def test_jumping_knowledge_is_dense_algebra():
    graph, model = tiny_graph(), jumping().train()
    assert "branches.second.join" not in model.layer_names()  # it goes on where the first one ends

    def wanted():
        h0 = torch.relu(
            dense.dropout(graph.x, graph, rows(graph, 0), P) @ model.encoder.weight + model.encoder.bias
        )
        a = dense.gcn(model.branches["first"]["0"], h0, graph, rows(graph, 1), {})
        b = dense.gcnii(model.branches["second"]["0"], a, graph, rows(graph, 2), {"h0": h0})
        c = dense.sage(model.branches["third"]["0"], b, graph, rows(graph, 3), {})
        return dense.linear(torch.cat([h0, a, b, c], 1), model.decoder.module)

    agree(model, graph, wanted)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((6,), 0.3))

    def forward(self, a, b):
        return torch.sigmoid(self.weight) * a + (1 - torch.sigmoid(self.weight)) * b


def gated(gate):
    branches = {"a": Branch([GCN(6, 6)]), "b": Branch([GCN(6, 6)]), "c": Branch([], ("a", "b"), gate)}
    return LayerGraph(branches, encoder=nn.Linear(7, 6), decoder=nn.Linear(6, 3)).double()


def test_a_module_may_join():
    graph, model = tiny_graph(), gated(Gate())
    assert "branches.c.join.module.weight" in dict(model.named_parameters())

    def wanted():
        h = dense.linear(graph.x, model.encoder.module)
        a, b = (dense.gcn(model.branches[n]["0"], h, graph, rows(graph, 1), {}) for n in "ab")
        return dense.linear(model.branches["c"]["join"].module(a, b), model.decoder.module)

    agree(model, graph, wanted)

    class Centred(Gate):
        def forward(self, a, b):
            return super().forward(a, b) - a.mean(0)

    (fault,) = gated(Centred()).check(graph)
    assert fault.startswith("branches.c.join: after() gives other values for some rows than for all")


def test_one_branch_is_a_stack():
    graph = tiny_graph()
    torch.manual_seed(0)
    parts = nn.Linear(7, 6), [GCN(6, 6, dropout=P), nn.ReLU(), GCNII(6, 2, dropout=P)], nn.Linear(6, 3)
    stack = LayerStack(*copy.deepcopy(parts)).double().train()
    one = LayerGraph({"only": Branch(parts[1])}, encoder=parts[0], decoder=parts[2]).double().train()
    assert torch.equal(one(graph, 1, 2), stack(graph, 1, 2))
    assert one.units() == stack.units() == [range(2), range(2, 3), range(3, 5)]
    assert one.num_layers == stack.num_layers == 3


def test_graphs_can_be_copied_and_pickled():
    graph, model = tiny_graph(), towers().eval()
    expected = model(graph)
    assert torch.equal(copy.deepcopy(model)(graph), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(graph), expected)


def test_all_faults_of_a_graph_are_named_at_once():
    with pytest.raises(InputError) as caught:
        LayerGraph(
            {
                "encoder": Branch([GCN(6, 6)], inputs="features"),
                "a.b": Branch([GCN(6, 6)]),
                "one": Branch([GCN(6, 6)], inputs="two"),
                "two": Branch([nn.Bilinear(6, 6, 6)], inputs=("one", "three"), join="sum"),
                "three": Branch([GCN(6, 6)], inputs=("one", "one", "nowhere")),
                "four": Branch([GCN(6, 6)], inputs="three", join="sum"),
                "five": Branch([], inputs="features"),
                "six": Branch([GCN(6, 6)], inputs=()),
                "seven": Branch([GCN(6, 6)], inputs=("five", "six"), join="plus"),
                "eight": Branch([GCN(6, 6)], inputs="nine"),
                "nine": Branch([GCN(6, 6)], inputs="eight"),
            },
            decoder=GCN(6, 3),
        )
    faults = caught.value.faults
    for expected in [
        "branches: 'encoder' cannot name a branch",
        "branches: 'a.b' cannot name a branch",
        "branches.a.b: reads 'encoder', but there is none; give one, or read 'features'",
        "branches.three: reads 'one' twice",
        "branches.three: reads 'nowhere', which does not exist; there are encoder, a.b, one,",
        "branches.three: has 3 inputs; say how to join them: sum, mean, max, cat",
        "branches.four: has nothing to join",
        "branches.five: layers are empty, and there is nothing to join",
        "branches.six: inputs are empty",
        "branches.seven: join 'plus' is none of sum, mean, max, cat, or a module",
        "branches: they read each other in a circle: one ← two ← one; break it",
        "branches: they read each other in a circle: eight ← nine ← eight; break it",
        "branches a.b, four, seven: nobody reads them, and the decoder reads one only;",
        "branches.two.0 (Bilinear): Bilinear is neither a graph layer",
        "decoder: GCN reads neighbours",
    ]:
        assert any(fault.startswith(expected) for fault in faults), (expected, faults)


def test_an_encoder_that_nobody_reads_is_refused():
    branches = {"a": Branch([GCN(7, 6)], inputs="features")}
    with pytest.raises(InputError, match="encoder: no branch reads it"):
        LayerGraph(branches, encoder=nn.Linear(7, 6), decoder=nn.Linear(6, 3))
    with pytest.raises(InputError, match="branches: empty"):
        LayerGraph({}, encoder=nn.Linear(7, 6), decoder=nn.Linear(6, 3))


def test_widths_that_do_not_fit_are_named_in_every_branch_at_once():
    branches = {
        "a": Branch([GCN(6, 4), GCN(5, 6)]),
        "b": Branch([GCNII(6, 1), GCN(6, 5)]),
        "c": Branch([GCN(6, 6)]),
        "d": Branch([], inputs=("b", "c"), join="max"),
        "e": Branch([], inputs=("a", "d"), join="cat"),
    }
    model = LayerGraph(branches, encoder=nn.Linear(7, 6), decoder=nn.Linear(6, 3)).double()
    first, second = model.check(tiny_graph())
    assert first.startswith("branches.a.0 (GCN) gives width 4; the next one, branches.a.1 (GCN), fails")
    assert second == "branches.d.join: max needs inputs of one width, but b 5, c 6 columns; use cat"


def test_layers_that_read_h0_need_an_encoder():
    model = LayerGraph({"a": Branch([GCNII(7, 1)], inputs="features")}, decoder=nn.Linear(7, 3)).double()
    faults = model.check(tiny_graph())
    assert (
        "branches.a.0 (GCNII): reads 'h0', the encoder's output, but there is no encoder; give one" in faults
    )
