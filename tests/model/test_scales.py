"""Scales of fixed linear aggregations, and the pull over a whole graph, against dense matrices."""

import itertools

import pytest
import torch
from model import dense

from gnnpar.graph.norm import degrees, scales
from gnnpar.model import Pull
from gnnpar.model.whole import pull


def matrix(graph, operator):
    a = dense.adjacency(graph)
    if operator.self_loops:
        a = a + torch.eye(len(a), dtype=a.dtype)
    degree = a.sum(1)
    positive = degree > 0
    if operator.norm == "mean":
        return torch.where(positive, 1 / degree, 0)[:, None] * a
    if operator.norm == "sym":
        scale = torch.where(positive, degree.pow(-0.5), 0)
        return scale[:, None] * a * scale[None, :]
    return a


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("norm", "self_loops"), list(itertools.product(["sym", "mean", "sum"], [False, True]))
)
def test_pull_and_its_gradient(graph, weighted_graph, norm, self_loops, weighted):
    graph = weighted_graph if weighted else graph
    operator = Pull(norm, self_loops)
    x = torch.randn(graph.num_nodes, 2, 3, dtype=torch.float64, requires_grad=True)
    target = torch.randn_like(x)
    found = pull(x, graph, scales(graph, operator))
    (gradient,) = torch.autograd.grad((found * target).sum(), x)
    a = matrix(graph, operator)
    torch.testing.assert_close(found, torch.einsum("vu,ukj->vkj", a, x), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, torch.einsum("vu,vkj->ukj", a, target), rtol=0, atol=1e-12)


def test_degrees_are_sums_of_weights(weighted_graph):
    into, out_of = degrees(weighted_graph)
    a = dense.adjacency(weighted_graph)
    torch.testing.assert_close(into, a.sum(1))
    torch.testing.assert_close(out_of, a.sum(0))
    counted = weighted_graph.replace(edge_weight=None)
    assert torch.equal(degrees(counted)[0], counted.in_degree)


def test_vertices_without_edges_have_scale_zero(graph):
    lonely = graph.in_degree == 0
    assert bool(lonely.any())
    found = scales(graph, Pull("mean"))
    assert found.r is not None
    assert torch.equal(found.r == 0, lonely)
