"""`LayerStack`: names, wrapping, declared carries, boundary payloads."""

import copy
import pickle

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar.errors import InputError
from gnnpar.model import GCN, GCNII, Decoder, Encoder, GraphSAGE, Layer, LayerStack, Push, RowWise


@pytest.fixture
def small():
    return tiny_graph()


def stack(*layers, width=6, features=7, classes=3):
    return LayerStack(nn.Linear(features, width), layers, nn.Linear(width, classes)).double()


def boundaries(model, graph):
    """The payload after every layer but the last, in their order."""
    return list(model.payloads(graph, [1] * len(model.all_layers())).values())


class Carrying(Layer):
    """Row-wise layer that does with carries what it is told to."""

    operator = None

    def __init__(self, reads=(), writes=(), looks=None, gives=None):
        super().__init__()
        self.reads, self.writes = reads, writes
        self.looks = reads if looks is None else looks
        self.gives = writes if gives is None else gives

    def after(self, z, h, carries, rows):
        total = z + sum(carries[name] for name in self.looks)
        return total, dict.fromkeys(self.gives, total[:, :2])


def test_the_readme_example(small):
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    model = LayerStack(
        encoder=nn.Linear(7, 64),
        layers=[pyg.GCNConv(64, 64), nn.ReLU(), pyg.SAGEConv(64, 64), GCNII(64, layer=1)],
        decoder=nn.Linear(64, 3),
    )
    assert model.check(small) == []
    assert model(small.to_dtype(torch.float32)).shape == (small.num_nodes, 3)


def test_parameters_are_named_by_global_position():
    model = LayerStack(Encoder(7, 6), [GCN(6, 6), nn.ReLU(), GraphSAGE(6, 6)], Decoder(6, 3))
    assert {name.rpartition(".")[0] for name, _ in model.named_parameters()} == {
        "encoder",
        "layers.0",
        "layers.0.linear",
        "layers.2.neigh",
        "layers.2.root",
        "decoder.linear",
    }
    assert [type(layer) for layer in model.all_layers()] == [Encoder, GCN, RowWise, GraphSAGE, Decoder]


def test_plain_modules_become_keyed_layers(small):
    """Dropout inside a sequential encoder is keyed: the same on any device, chunking and order of rows."""
    encoder = nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 6), nn.ReLU(), nn.Dropout(0.5))
    model = LayerStack(encoder, [GCN(6, 6)], nn.Linear(6, 3)).double().train()
    first, again, other = model(small, 1, 0), model(small, 1, 0), model(small, 1, 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    order = torch.randperm(small.num_nodes)
    torch.testing.assert_close(model(small.permute(order), 1, 0), first[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "make", [lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 6)), lambda: Encoder(7, 6, dropout=0.5)]
)
def test_sparse_features_give_what_dense_ones_do(make):
    sparse, torch_seed = tiny_graph(sparse=True), 3
    dense = sparse.replace(x=sparse.x.to_dense())
    torch.manual_seed(torch_seed)
    model = LayerStack(make(), [GCN(6, 6)], nn.Linear(6, 3)).double().train()
    results = []
    for graph in (sparse, dense):
        model.zero_grad()
        out = model(graph, seed=1, step=2)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_payloads_carry_what_is_still_to_be_read(small):
    model = stack(
        GCN(6, 6), GCNII(6, 1), Carrying(writes=("kept",)), GCN(6, 6), Carrying(reads=("kept",), looks=())
    )
    model.layers[-1].looks = ()
    (fault,) = model.check(small)
    assert fault.startswith("layers.4 (Carrying): declares that it reads carry 'kept', but never looks at it")
    model = stack(
        GCN(6, 6), GCNII(6, 1), Carrying(writes=("kept",)), GCN(6, 2), Carrying(reads=("kept",)), width=6
    )
    model.decoder = RowWise(nn.Linear(2, 3)).double()
    specs = boundaries(model, small)
    assert [[(s.name, s.tail) for s in payload] for payload in specs] == [
        [("h", (6,)), ("h0", (6,))],
        [("h", (6,)), ("h0", (6,))],
        [("h", (6,))],
        [("h", (6,)), ("kept", (2,))],
        [("h", (2,)), ("kept", (2,))],
        [("h", (2,))],
    ]
    assert all(s.needs_grad and s.dtype == torch.float64 for payload in specs for s in payload)


def test_frozen_encoder_needs_no_gradient(small):
    model = stack(GCN(6, 6), GCNII(6, 1))
    model.encoder.requires_grad_(False)
    (after_encoder, *_) = boundaries(model, small)
    assert [(s.name, s.needs_grad) for s in after_encoder] == [("h", False), ("h0", False)]


def test_all_faults_of_carries_are_listed_at_once(small):
    model = stack(
        Carrying(looks=("h0",)),
        Carrying(writes=("a",)),
        Carrying(writes=("a",)),
        Carrying(writes=("b",), gives=()),
        Carrying(writes=("h0",), gives=()),
        Carrying(gives=("c",)),
        GCNII(6, 1),
        Carrying(reads=("nowhere",), looks=()),
    )
    faults = model.check(small)
    for expected in [
        "layers.0 (Carrying): looks at carry 'h0' without declaring it; add it to reads",
        "layers.2 (Carrying): writes carry 'a' over that of layers.1 (Carrying), which nobody reads",
        "layers.2 (Carrying): writes carry 'a', which no later layer reads",
        "layers.3 (Carrying): declares that it writes carry 'b', but does not return it",
        "layers.4 (Carrying): writes carry 'h0', but that name is the encoder's output",
        "layers.5 (Carrying): returns carry 'c' without declaring it",
        "layers.7 (Carrying): declares that it reads carry 'nowhere', which no earlier layer writes",
    ]:
        assert any(fault.startswith(expected) for fault in faults), (expected, faults)
    with pytest.raises(InputError, match=r"model: \d+ faults"):
        model(small)


def test_undeclared_input_and_widths_are_faults(small):
    class Peeks(GCN):
        def after(self, z, h, carries, rows):
            return super().after(z, h, carries, rows) + h

    assert stack(Peeks(6, 6)).check(small) == [
        "layers.0 (Peeks): after() looks at its input h; declare reads_input = True"
    ]
    (fault,) = stack(GCN(5, 5)).check(small)
    assert fault.startswith("encoder gives width 6; the next one, layers.0 (GCN), fails: RuntimeError: mat1")
    (fault,) = stack(GCN(6, 6), GCN(6, 4)).check(small)
    assert fault.startswith("layers.1 (GCN) gives width 4; the next one, decoder, fails: RuntimeError: mat1")
    (fault,) = stack(GCN(6, 6), features=5).check(small)
    assert fault.startswith("encoder: the features have width 7; it fails: RuntimeError: mat1")


class Stranger(nn.Module):
    pass


def test_unusable_modules_are_refused_all_at_once():
    with pytest.raises(InputError) as error:
        LayerStack(GCN(7, 6), [Stranger(), nn.ReLU(), Stranger()], nn.Linear(6, 3))
    assert len(error.value.faults) == 3
    assert error.value.faults[0] == "encoder: GCN reads neighbours; put it into layers"
    assert "layers.2 (Stranger): Stranger is neither a graph layer" in error.value.faults[2]
    with pytest.raises(InputError, match="layers: empty"):
        LayerStack(nn.Linear(7, 6), [], nn.Linear(6, 3))


def test_a_graph_without_features_is_refused(small):
    with pytest.raises(InputError, match="no features x"):
        stack(GCN(6, 6))(small.replace(x=None))


def test_batch_norm_module_is_deferred(small):
    model = stack(GCN(6, 6), nn.BatchNorm1d(6)).train()
    assert model.chunk_dependent
    norm = model.layers[1].module
    model(small)
    assert float(norm.running_mean.abs().max()) == 0.0
    model.commit()
    assert float(norm.running_mean.abs().max()) > 0.0


def test_stacks_can_be_copied_and_pickled(small):
    model = stack(GCN(6, 6), GCNII(6, 1)).eval()
    expected = model(small)
    assert torch.equal(copy.deepcopy(model)(small), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(small), expected)


class Centred(Layer):
    """Looks at all rows at once, where it is told to."""

    operator = Push()

    def __init__(self, where):
        super().__init__()
        self.where = where

    def before(self, h, carries, rows):
        return h - h.mean(0) if self.where == "before" else h

    def aggregate(self, x, block, rows):
        return x[: block.num_rows] - (x.mean(0) if self.where == "aggregate" else 0)

    def after(self, z, h, carries, rows):
        return z - z.mean(0) if self.where == "after" else z


@pytest.mark.parametrize("where", ["before", "aggregate", "after"])
def test_layers_that_look_at_other_rows_are_found_out(small, where):
    (fault,) = stack(Centred(where)).check(small)
    assert fault.startswith(f"layers.0 (Centred): {where}() gives other values")
    declared = Centred(where)
    declared.__class__ = type("Declared", (Centred,), {"chunk_dependent": True})
    assert stack(declared).check(small) == []
    assert stack(Centred("nowhere")).check(small) == []


def test_a_module_declared_row_wise_is_checked(small):
    class Softmax(nn.Module):
        def forward(self, x):
            return x.softmax(0)

    (fault,) = stack(GCN(6, 6), RowWise(Softmax())).check(small)
    assert fault.startswith("layers.1 (RowWise): after() gives other values for some rows than for all")
