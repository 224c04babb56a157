"""Who reads what of a model's layers: what no stage may separate, and what crosses between stages."""

from model.branching import jumping, towers
from support.graphs import tiny_graph
from torch import nn

from gnnpar.model import GCN, GCNII, Branch, Layer, LayerGraph, LayerStack


def test_layers_that_may_not_be_separated():
    assert towers().branches_in_order() == {
        "near": [range(1), range(1, 2)],
        "far": [range(2, 4), range(4, 5), range(5, 6)],
        "tail": [range(6, 9)],
    }
    assert jumping().branches_in_order() == {
        "first": [range(2)],
        "second": [range(2, 3)],
        "third": [range(3, 4)],
        "tail": [range(4, 6)],
    }
    assert towers().num_layers == 6


def crossing(model, graph, split, edges=None):
    return {edge: [s.name for s in specs] for edge, specs in model.payloads(graph, split, edges).items()}


def test_stages_of_branches_form_a_graph():
    model, graph = towers(), tiny_graph()
    split = (2, 2, 2, 3)
    edges = model.stage_edges(split)
    assert edges == ((0, 3), (1, 2), (2, 3))
    assert crossing(model, graph, split, edges) == {
        (0, 3): ["branches.near"],
        (1, 2): ["h"],
        (2, 3): ["branches.far"],
    }
    assert crossing(model, graph, split) == {
        (0, 1): ["branches.near"],
        (1, 2): ["h", "branches.near"],
        (2, 3): ["branches.far", "branches.near"],
    }


def test_carries_travel_along_the_branches():
    model, graph = jumping(), tiny_graph()
    split = (2, 1, 1, 2)
    edges = model.stage_edges(split)
    assert edges == ((0, 1), (0, 3), (1, 2), (1, 3), (2, 3))
    assert crossing(model, graph, split, edges) == {
        (0, 1): ["h", "h0"],
        (0, 3): ["branches.first", "h0"],
        (1, 2): ["h"],
        (1, 3): ["branches.second"],
        (2, 3): ["branches.third"],
    }


def test_a_stack_makes_a_chain():
    layers = [GCNII(6, i + 1) for i in range(4)]
    model = LayerStack(nn.Linear(7, 6), layers, nn.Linear(6, 3)).double()
    split = (2, 1, 1, 2)
    assert model.stage_edges(split) == ((0, 1), (1, 2), (2, 3))
    assert crossing(model, tiny_graph(), split) == {edge: ["h", "h0"] for edge in [(0, 1), (1, 2), (2, 3)]}


class Writes(Layer):
    operator = None
    writes = ("kept",)

    def after(self, z, h, carries, rows):
        return z, {"kept": z[:, :2]}


class Reads(Layer):
    operator = None
    reads = ("kept",)

    def after(self, z, h, carries, rows):
        return z + carries["kept"].sum(1, keepdim=True)


def test_a_carry_from_a_branch_that_leads_nowhere_near_gets_an_edge_of_its_own():
    branches = {
        "a": Branch([Writes(), GCN(6, 6)]),
        "b": Branch([GCN(6, 6), Reads()]),
        "c": Branch([], inputs=("a", "b"), join="sum"),
    }
    model = LayerGraph(branches, encoder=nn.Linear(7, 6), decoder=nn.Linear(6, 3)).double()
    split = (3, 2, 1, 2)
    edges = model.stage_edges(split)
    assert edges == ((0, 1), (0, 3), (1, 2), (2, 3))
    found = crossing(model, tiny_graph(), split, edges)
    assert found[0, 1] == ["h0", "kept"] and found[1, 2] == ["h", "kept"] and found[2, 3] == ["branches.b"]
    split = (2, 1, 1, 1, 1, 2)
    assert (0, 1) in model.stage_edges(split)
    model.branches["b"]["join"].reads, model.branches["b"]["join"].names = ("features",), ("features",)
    model.branches["b"]["0"] = GCN(7, 6).double()
    assert model.stage_edges((3, 2, 1, 2)) == ((0, 2), (0, 3), (1, 2), (2, 3))
