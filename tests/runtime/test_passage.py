"""Fused passes between GCNII aggregations give what autograd gives, which runs where they do not fit."""

import pytest
import torch
from runtime.cases import chunked_graph, make_config, make_trainer
from support.graphs import tiny_graph
from torch import nn

from gnnpar.config.schema import MemoryConfig
from gnnpar.graph.norm import scales
from gnnpar.history import CutStore
from gnnpar.model import LayerStack
from gnnpar.model.layers import GCN, GCNII, Encoder
from gnnpar.runtime.aggregation import PullAggregation
from gnnpar.runtime.passage import AutogradPassage, FusedPassage
from gnnpar.runtime.stage import Stage
from gnnpar.train.job import make_model

STEPS = 6


class UnfusedGCNII(GCNII):
    def fused_with(self, ahead):
        return None


def trainers(graph, **keys):
    """The same run with fused passages and without."""
    config = make_config({"num_layers": 4}, **keys)
    chunked = chunked_graph(config.batch.num_chunks, graph)
    plain = make_model(config, chunked.graph)
    for layer in plain.layers:
        layer.__class__ = UnfusedGCNII
    return make_trainer(config, graph=graph), make_trainer(config, graph=graph, model=plain)


def fused_passages(trainer):
    passages = [p for stage in trainer.executor.stages.values() for p in stage.passages]
    return sum(isinstance(passage, FusedPassage) for passage in passages)


@pytest.mark.parametrize("mode", ["latest", "snapshot", "drop"])
@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("weighted", "recompute"), [(False, False), (True, True)])
def test_fused_equals_autograd(mode, gamma, weighted, recompute):
    graph = tiny_graph(weighted=weighted)
    keys = {"history": {"mode": mode, "gamma": gamma}, "memory": MemoryConfig(recompute=recompute)}
    fused, plain = trainers(graph, **keys)
    assert fused_passages(fused) == 3 and fused_passages(plain) == 0
    for _ in range(STEPS):
        mine, other = fused.train_step(), plain.train_step()
        assert mine.loss == pytest.approx(other.loss, rel=1e-12)
        found, wanted = fused.gradients(), plain.gradients()
        largest = max(float(g.abs().max()) for g in wanted.values())
        for name, g in wanted.items():
            torch.testing.assert_close(found[name], g, rtol=0, atol=1e-12 * largest, msg=name)


def test_one_chunk_equals_autograd_too():
    fused, plain = trainers(tiny_graph(), chunks=1)
    for _ in range(3):
        assert fused.train_step().loss == pytest.approx(plain.train_step().loss, rel=1e-12)


def stage_of(layers):
    chunked = chunked_graph(2)
    aggregations = [
        PullAggregation(CutStore(chunked.graph.num_nodes, 1), scales(chunked.graph, layer.operator))
        for layer in layers
        if layer.operator is not None
    ]
    return Stage(list(enumerate(layers)), aggregations, (), (), node_ids=chunked.graph.node_ids, seed=0)


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ([GCNII(6, 1), GCNII(6, 2), GCNII(6, 3)], "AFFA"),
        ([GCNII(6, 1), GCNII(8, 2)], "AAA"),
        ([GCNII(6, 1), GCN(6, 6), GCNII(6, 2)], "AAAA"),
        ([GCNII(6, 1), Encoder(6, 6), GCNII(6, 2)], "AAA"),
    ],
    ids=["equal", "other width", "other layer", "a layer between"],
)
def test_only_neighbouring_layers_of_one_width_are_fused(layers, kinds):
    passages = stage_of(layers).passages
    assert [{"A": AutogradPassage, "F": FusedPassage}[k] for k in kinds] == [type(p) for p in passages]


def test_fused_and_unfused_passages_of_one_model_give_its_plain_gradient():
    layers = [GCNII(6, 1), GCNII(6, 2), GCN(6, 6), nn.Tanh(), GCNII(6, 3), GCNII(6, 4)]
    graph = tiny_graph(weighted=True)
    model = LayerStack(nn.Linear(graph.num_features, 6), layers, nn.Linear(6, 3)).double()
    config = make_config(chunks=1)
    trainer = make_trainer(config, graph=graph, model=model)
    assert fused_passages(trainer) == 2
    renumbered = trainer.chunked.graph
    wanted = (renumbered.y >= 0) & renumbered.train_mask
    logits = model(renumbered)
    loss = nn.functional.cross_entropy(logits[wanted], renumbered.y[wanted])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    result = trainer.train_step()
    assert result.loss == pytest.approx(loss.item(), rel=1e-12)
    for (name, _), g in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(trainer.gradients()[name], g, rtol=1e-10, atol=1e-13, msg=name)


def test_a_carry_that_layers_replace_gets_its_gradient():
    """Every layer adds itself to a running sum, which the decoder reads: it crosses all segments."""
    model = {"name": "gcn", "num_layers": 3, "hidden": 6, "dropout": 0.0, "jumping_knowledge": "sum"}
    config = make_config(model, chunks=1)
    trainer = make_trainer(config)
    graph = trainer.chunked.graph
    plain = make_model(config, graph).double()
    wanted = (graph.y >= 0) & graph.train_mask
    loss = nn.functional.cross_entropy(plain(graph)[wanted], graph.y[wanted])
    loss.backward()
    assert trainer.train_step().loss == pytest.approx(loss.item(), rel=1e-12)
    for name, p in plain.named_parameters():
        torch.testing.assert_close(trainer.gradients()[name], p.grad, rtol=1e-10, atol=1e-13, msg=name)
