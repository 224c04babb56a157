"""Layers of DGL, whose kernels run as operations of torch while they are counted."""

import pytest
import torch
from support.graphs import tiny_graph
from torch import nn

from gnnpar.analysis import cost_of_model
from gnnpar.errors import InputError
from gnnpar.interop.dgl import import_dgl
from gnnpar.interop.dgl_torch import kernels_as_torch
from gnnpar.model import Decoder, Encoder, LayerStack

try:
    dgl = import_dgl()
except InputError:
    pytest.skip("dgl is not installed", allow_module_level=True)

KEYS = {"allow_zero_in_degree": True}
CASES = {
    "GraphConv": (lambda: dgl.nn.GraphConv(6, 6, **KEYS), "C-GNN"),
    "SAGE, mean": (lambda: dgl.nn.SAGEConv(6, 6, "mean"), "C-GNN"),
    "SAGE, pool": (lambda: dgl.nn.SAGEConv(6, 6, "pool"), "C-GNN"),
    "GIN": (lambda: dgl.nn.GINConv(nn.Linear(6, 6)), "C-GNN"),
    "GAT": (lambda: dgl.nn.GATConv(6, 3, 2, **KEYS), "A-GNN"),
    "GATv2": (lambda: dgl.nn.GATv2Conv(6, 3, 2, **KEYS), "A-GNN"),
    "AGNN": (lambda: dgl.nn.AGNNConv(**KEYS), "A-GNN"),
    "EdgeConv": (lambda: dgl.nn.EdgeConv(6, 6, **KEYS), "MP-GNN"),
}


def model_of(name):
    torch.manual_seed(0)
    return LayerStack(Encoder(7, 6), [CASES[name][0]()], Decoder(6, 3)).double().eval()


def results(model, graph):
    out = model(graph)
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [out, *torch.autograd.grad(out.square().sum(), parameters, allow_unused=True)]


@pytest.mark.parametrize("name", CASES)
def test_work_on_edges_and_class_are_found(name):
    layer = cost_of_model(model_of(name), tiny_graph()).layers[1]
    assert layer.role.name == CASES[name][1]
    assert layer.forward.by_phase("reduce") and layer.forward.by_phase("scatter")


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_torch_give_what_those_of_dgl_give(name):
    model, graph = model_of(name), tiny_graph()
    wanted = results(model, graph)
    with kernels_as_torch():
        found = results(model, graph)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_the_kernels_of_dgl_come_back():
    from dgl.backend.pytorch import sparse

    before = sparse._gspmm
    with kernels_as_torch():
        assert sparse._gspmm is not before
    assert sparse._gspmm is before
    with pytest.raises(ZeroDivisionError), kernels_as_torch():
        1 / 0  # noqa: B018
    assert sparse._gspmm is before
