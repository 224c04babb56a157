"""Normalisations against torch's and PyG's; batch statistics over chunks against those over all rows."""

import pytest
import torch
from torch import nn

from gnnpar.errors import InputError
from gnnpar.model import GCN, Rows
from gnnpar.model.norm import NORMS, BatchNorm, make_norm

WIDTH = 8


def rows(n, training=True, recomputing=False):
    return Rows(torch.arange(n), 0, 0, 1, training, recomputing)


def randomise(module):
    draw = torch.Generator().manual_seed(1)
    for p in module.parameters():
        p.data = torch.rand(p.shape, dtype=torch.float64, generator=draw) + 0.5
    return module.double()


def reference(kind, norm):
    pyg = pytest.importorskip("torch_geometric.nn")
    other = {
        "layer": lambda: nn.LayerNorm(WIDTH),
        "rms": lambda: nn.RMSNorm(WIDTH, eps=norm.eps),
        "group": lambda: nn.GroupNorm(8, WIDTH),
        "batch": lambda: nn.BatchNorm1d(WIDTH),
        "graph": lambda: pyg.GraphNorm(WIDTH),
        "pair": lambda: pyg.PairNorm(),
        "instance": lambda: pyg.InstanceNorm(WIDTH),
    }[kind]()
    other = other.double()
    own = dict(norm.named_parameters())
    for name, parameter in other.named_parameters():
        parameter.data = own.pop(name).data.clone()
    assert not own
    return other


@pytest.mark.parametrize("kind", NORMS)
def test_norm_equals_that_of_torch_or_pyg(kind):
    norm = randomise(make_norm(kind, WIDTH))
    other = reference(kind, norm)
    x = torch.randn(11, WIDTH, dtype=torch.float64) * 2 + 1
    torch.testing.assert_close(norm(x, rows(11)), other(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", NORMS)
def test_chunk_dependence_is_as_declared(kind):
    norm = randomise(make_norm(kind, WIDTH))
    x = torch.randn(12, WIDTH, dtype=torch.float64)
    whole = norm(x, rows(12))
    parts = torch.cat([norm(x[:5], rows(5)), norm(x[5:], rows(7))])
    same = torch.allclose(whole, parts, rtol=0, atol=1e-12)
    assert same is not norm.chunk_dependent


def test_running_statistics_of_chunks_are_those_of_all_rows():
    x = torch.randn(30, WIDTH, dtype=torch.float64) * 3 + 2
    other = nn.BatchNorm1d(WIDTH).double()
    other(x)
    norm = BatchNorm(WIDTH).double()
    for part in (x[:1], x[1:9], x[9:9], x[9:]):
        norm(part, rows(len(part)))
        norm(part, rows(len(part), recomputing=True))
    torch.testing.assert_close(norm.running_mean, torch.zeros(WIDTH, dtype=torch.float64), rtol=0, atol=0)
    norm.commit()
    norm.commit()
    torch.testing.assert_close(norm.running_mean, other.running_mean)
    torch.testing.assert_close(norm.running_var, other.running_var)
    other.eval()
    torch.testing.assert_close(norm(x, rows(30, training=False)), other(x))


def test_layers_say_whether_they_depend_on_chunks():
    assert GCN(4, 4, norm="batch").chunk_dependent
    assert not GCN(4, 4, norm="layer").chunk_dependent


def test_unknown_norm_is_refused():
    with pytest.raises(InputError, match="unknown normalisation 'lyer'; choose one of none, layer"):
        make_norm("lyer", 4)
