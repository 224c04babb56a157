"""Layers to stages, by hand and by measured costs."""

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from support.graphs import tiny_graph
from torch import nn

from gnnpar.config.schema import ParallelConfig
from gnnpar.dist import Context
from gnnpar.model import GCN, Branch, LayerGraph
from gnnpar.plan import plan_stages, profile, profile_layers, stage_faults
from gnnpar.train.job import make_model

LAYERS = 6


class FirstOf(Context):
    """Rank 0 of several, whose broadcasts need nobody."""

    def broadcast_object(self, value, source, what):
        assert source == 0
        return value


def context(num_stages):
    return FirstOf(0, num_stages, torch.device("cpu"), 10.0)


def plan(num_stages, given=None, name="gcnii"):
    config = make_config(
        {"num_layers": LAYERS, "name": name},
        parallel=ParallelConfig(stages=num_stages, layers_per_stage=given),
    )
    chunked = chunked_graph(4)
    model = make_model(config, chunked.graph).double()
    return plan_stages(model, chunked, config, context(num_stages), num_stages)


def test_by_hand_the_ends_get_encoder_and_decoder():
    assert plan(3, (1, 2, 3)) == (2, 2, 4)
    assert plan(1, (LAYERS,)) == (LAYERS + 2,)


def test_one_stage_holds_everything_unmeasured(monkeypatch):
    monkeypatch.setattr(profile, "profile_layers", lambda *_: pytest.fail("measured for nothing"))
    assert plan(1) == (LAYERS + 2,)


@pytest.mark.parametrize(
    ("costs", "wanted"),
    [
        ([0, 1, 1, 1, 1, 1, 1, 0], (4, 4)),
        ([9, 1, 1, 1, 1, 1, 1, 0], (2, 6)),  # the encoder counts with the first layer
        ([0, 1, 1, 1, 1, 1, 1, 9], (6, 2)),
        ([0, 1, 1, 1, 9, 1, 1, 0], (4, 4)),
    ],
)
def test_measured_costs_decide(monkeypatch, costs, wanted):
    monkeypatch.setattr(profile, "profile_layers", lambda *_: costs)
    found = plan(2)
    slowest = lambda split: max(sum(costs[: split[0]]), sum(costs[split[0] :]))  # noqa: E731
    assert sum(found) == LAYERS + 2 and slowest(found) == slowest(wanted)


@pytest.mark.parametrize("num_stages", [2, LAYERS])
def test_every_stage_gets_a_layer(num_stages):
    found = plan(num_stages)
    assert len(found) == num_stages and sum(found) == LAYERS + 2
    assert found[0] >= 2 and found[-1] >= 2 and min(found) >= 1


@pytest.mark.parametrize("name", ["gcnii", "resgcn", "gat"])
def test_profiling_times_every_layer_and_leaves_the_model_alone(name):
    config = make_config({"name": name, "num_layers": 3, "norm": "batch"}, dtype="float32")
    chunked = chunked_graph(4, dtype=torch.float32)
    model = make_model(config, chunked.graph)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    costs = profile_layers(model, chunked, config, repeats=1)
    # What is done by row belongs to the aggregation before it, the start of the stage to the encoder.
    timed = [i == 0 or layer.operator is not None for i, layer in enumerate(model.all_layers())]
    assert [cost > 0 for cost in costs] == timed
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def config_of(stages, given=None):
    num_layers = 8 if given is None else sum(given)
    return make_config(
        {"num_layers": num_layers}, parallel=ParallelConfig(stages=stages, layers_per_stage=given)
    )


def stack(num_layers):
    return make_model(make_config({"num_layers": num_layers}), tiny_graph())


def test_stages_that_fit_have_no_fault():
    assert stage_faults(config_of(3), stack(3), 3) == []
    assert stage_faults(config_of(2, (1, 2)), stack(3), 2) == []


def test_a_rank_may_hold_several_stages():
    """What counts is the schedule's stages: four on two ranks."""
    assert stage_faults(config_of(2), stack(4), 4) == []
    assert stage_faults(config_of(2, (1, 1, 1, 1)), stack(4), 4) == []
    (text,) = stage_faults(config_of(2, (2, 2)), stack(4), 4)
    assert text.startswith("parallel.layers_per_stage: [2, 2] must be 4 numbers with sum 4")
    (text,) = stage_faults(config_of(2), stack(3), 4)
    assert "makes 4 stages on 2 ranks, but the model has 3 layers; use fewer ranks, or 4 layers" in text


def test_more_stages_than_layers_of_a_model_of_ones_own_are_a_fault():
    (text,) = stage_faults(config_of(5), stack(3), 5)
    assert text == "parallel.stages: 5 stages, but the model has 3 layers; use 3 or fewer"


@pytest.mark.parametrize("given", [(1, 1), (3, 4)])
def test_a_split_that_does_not_fit_a_model_of_ones_own_is_a_fault(given):
    (text,) = stage_faults(config_of(2, given), stack(3), 2)
    assert text.startswith("parallel.layers_per_stage: ") and "sum 3" in text


def branching(width=6):
    branches = {
        "light": Branch([GCN(width, width)]),
        "heavy": Branch([nn.Linear(7, width), GCN(width, width), GCN(width, width)], inputs="features"),
        "tail": Branch([GCN(width, width)], inputs=("light", "heavy"), join="sum"),
    }
    return LayerGraph(branches, encoder=nn.Linear(7, width), decoder=nn.Linear(width, 3)).double()


def test_branches_are_timed_apart():
    """What is done by row at the start of a branch belongs to it, not to the branch before."""
    costs = profile_layers(branching(), chunked_graph(4), make_config(), repeats=1)
    names = branching().layer_names()
    timed = {name for name, cost in zip(names, costs, strict=True) if cost > 0}
    wanted = {"encoder", "branches.light.0", "branches.heavy.join", "branches.heavy.1", "branches.heavy.2"}
    assert timed == wanted | {"branches.tail.join", "branches.tail.0"}


def test_measured_stages_of_a_graph_keep_to_branches(monkeypatch):
    model = branching()
    assert model.layer_names().index("branches.heavy.join") == 2
    costs = [1, 1, 0, 1, 9, 9, 0, 1, 1]
    monkeypatch.setattr(profile, "profile_layers", lambda *_: costs)
    config = make_config({"num_layers": 5}, parallel=ParallelConfig(stages=4))
    found = plan_stages(model, chunked_graph(4), config, context(4), 4, by_branch=True)
    assert found == (2, 3, 1, 3)  # light with the encoder, heavy cut once, tail with the decoder
    assert stage_faults(config, model, 4, by_branch=True) == []
    assert stage_faults(make_config(parallel=ParallelConfig(stages=2)), model, 2) == []
