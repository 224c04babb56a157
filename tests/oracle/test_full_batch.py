"""One chunk in one, two and four processes equals full-batch training: loss and every gradient, float64."""

import copy

import pytest
import torch
from oracle.driver import TOLERANCE, Case, mismatches
from oracle.models import LAYER_TYPES
from torch.nn import functional as F

GRID = [
    Case(layer=layer, directed=directed, stages=stages, optimizer=optimizer)
    for stages in (1, 2, 4)
    for layer in LAYER_TYPES
    for directed in (True, False)
    for optimizer in ("sgd", "adam")
]
EXTRA = [
    *(Case(layer=layer, stages=2, recompute=True) for layer in LAYER_TYPES),
    *(Case(layer=layer, stages=2, graph=(("weighted", True),)) for layer in LAYER_TYPES),
    *(
        Case(layer=layer, stages=stages, graph=(("sparse", True),))
        for layer in ("gcn", "gcnii")
        for stages in (1, 2)
    ),
    *(Case(layer=layer, stages=2, graph=(("multi_label", True),)) for layer in ("gcnii", "gat")),
    *(Case(layer="gcn", stages=4, model=(("jumping_knowledge", jump),)) for jump in ("cat", "max", "sum")),
    *(Case(layer="gat", stages=2, model=(("norm", norm),)) for norm in ("layer", "rms", "batch")),
    Case(layer="gcnii", stages=2, split=(1, 3)),
    Case(layer="gcnii", stages=3, split=(2, 1, 1)),
    *(
        Case(layer="gcnii", stages=2, optimizer=name, decay=decay)
        for name in ("sgd", "adam", "adamw")
        for decay in ((0.01, 0.2), (0.1, None))
    ),
]


@pytest.mark.parametrize("case", GRID + EXTRA, ids=str)
def test_equals_full_batch(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []


@pytest.mark.parametrize("case", [c for c in GRID if c.stages == 2 and c.optimizer == "sgd"], ids=str)
def test_equals_the_model_as_a_plain_module(runs, case):
    """The model's own `forward` and autograd, one process, no reference of ours."""
    graph = case.build_graph()
    model = case.build_model(graph)
    used = graph.train_mask & (graph.y >= 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=case.learning_rate)
    for t, record in enumerate(runs[case]):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graph, seed=case.seed, step=t)[used], graph.y[used])
        loss.backward()
        assert record.loss == pytest.approx(loss.item(), rel=TOLERANCE)
        wanted = {name: p.grad for name, p in model.named_parameters()}
        largest = max(float(g.abs().max()) for g in wanted.values())
        for name, gradient in wanted.items():
            assert float((record.gradients[name] - gradient).abs().max()) <= TOLERANCE * largest, name
        optimizer.step()
    last = copy.deepcopy(dict(model.named_parameters()))
    for name, found in runs[case][-1].parameters.items():
        assert torch.allclose(found, last[name], rtol=0, atol=1e-9), name
