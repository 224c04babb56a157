"""One chunk in one, two and four processes equals full-batch training: loss and every gradient, float64."""

import copy

import pytest
import torch
from oracle.driver import TOLERANCE, Case, make_trainer, mismatches
from oracle.models import LAYER_TYPES, foreign_modules
from torch import nn
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
    *(Case(layer=layer, stages=2, graph=(("loops", True),)) for layer in LAYER_TYPES),
    *(Case(layer=layer, stages=stages) for layer in ("mixed", "pyg") for stages in (1, 2, 4)),
    *(Case(layer="gen+edges", stages=stages, graph=(("edge_features", 2),)) for stages in (1, 2)),
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
        assert_close(record.gradients, wanted)
        optimizer.step()
    last = copy.deepcopy(dict(model.named_parameters()))
    for name, found in runs[case][-1].parameters.items():
        assert torch.allclose(found, last[name], rtol=0, atol=1e-9), name


def test_equals_plain_pyg(runs):
    """PyG's own modules on the whole graph, no layer or adapter of ours."""
    case = Case(layer="pyg", stages=2)
    graph = case.build_graph()
    names = [name for name, _ in case.build_model(graph).named_parameters()]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, layers, decoder = foreign_modules(graph.num_features, graph.num_classes)
    modules = nn.ModuleList([encoder, *layers, decoder]).double()
    used = graph.train_mask & (graph.y >= 0)
    optimizer = torch.optim.SGD(modules.parameters(), lr=case.learning_rate)
    for record in runs[case]:
        h = graph.x
        for module in modules:
            h = module(h, graph.edge_index) if hasattr(module, "propagate") else module(h)
        loss = F.cross_entropy(h[used], graph.y[used])
        optimizer.zero_grad()
        loss.backward()
        assert record.loss == pytest.approx(loss.item(), rel=TOLERANCE)
        wanted = {name: p.grad for name, p in zip(names, modules.parameters(), strict=True)}
        assert_close(record.gradients, wanted)
        optimizer.step()


@pytest.mark.parametrize("stages", [1, 2])
def test_a_clipped_norm_spans_all_stages(runs, stages):
    """The first step moves every parameter by lr · clip / |g|, |g| over the whole model."""
    free, clipped = (runs[Case(layer="gcnii", stages=stages, clip=clip)][0] for clip in (None, 0.05))
    norm = torch.stack([g.square().sum() for g in free.gradients.values()]).sum().sqrt()
    assert norm > 0.05
    case = Case(layer="gcnii")
    start = dict(case.build_model(case.build_graph()).named_parameters())
    moved = {name: (start[name] - p).detach() / case.learning_rate for name, p in clipped.parameters.items()}
    assert_close(moved, {name: g * 0.05 / norm for name, g in free.gradients.items()})


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("layer", [*LAYER_TYPES, "mixed", "pyg"])
def test_evaluation_is_exact_after_chunked_training(pool, layer, stages):
    """Scores equal those of the whole model with the trained parameters: no history, no dropout."""
    case = Case(layer=layer, stages=stages, chunks=8, mode="snapshot", gamma=2.0, steps=3)
    ranks = pool.run(train_and_evaluate, stages, case)
    graph = case.build_graph()
    model = case.build_model(graph)
    trained = {name: p for parameters, _ in ranks for name, p in parameters.items()}
    model.load_state_dict(model.state_dict() | trained)
    with torch.no_grad():
        right = model.eval()(graph).argmax(1) == graph.y
    labelled = graph.y >= 0
    for _, scores in ranks:
        for mask, score in zip((graph.train_mask, graph.val_mask, graph.test_mask), scores, strict=True):
            assert score == pytest.approx(right[mask & labelled].double().mean().item(), abs=1e-12)


def train_and_evaluate(context, case):
    trainer = make_trainer(case, context)
    for _ in range(case.steps):
        trainer.train_step()
    scores = trainer.evaluate()
    return {name: p.clone() for name, p in trainer.parameters().items()}, (
        scores.train,
        scores.val,
        scores.test,
    )


def assert_close(found, wanted):
    largest = max(float(g.abs().max()) for g in wanted.values())
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert float((found[name] - gradient).abs().max()) <= TOLERANCE * largest, name
