"""Ways that read each other's rows in an approximation, live, on a directed graph with all dropouts on: loss
and every gradient are those of a dense reference of the published update, bytes those of its messages.
"""

from functools import cache

import pytest
import torch
from oracle.driver import Case, make_trainer, mismatches
from oracle.halo_reference import (
    BoundedReference,
    QuantisedReference,
    SampledReference,
    StaleReference,
    WaysReference,
)
from oracle.models import PULL
from oracle.test_ways import layers_and_ways
from support.graphs import chunk_assignment

STEPS = 5
KINDS = {
    "stale": StaleReference,
    "sampled": SampledReference,
    "quantised": QuantisedReference,
    "bounded": BoundedReference,
}


def case(layer, mode, ways=2, stages=1, **keys):
    own = {"smooth_features", "smooth_gradients", "rate", "period", "bound", "bits"}
    halo = {"mode": mode} | {key: keys.pop(key) for key in own & keys.keys()}
    keys = {"steps": STEPS, "split": (4 // stages,) * stages} | keys
    return Case(layer=layer, ways=ways, stages=stages, halo=tuple(sorted(halo.items())), **keys)


STALE = [
    *(case(layer, "stale") for layer in ("gcnii", "sage", "gin", "gat", "gen")),
    *(case(layer, "stale", ways=4) for layer in ("gcnii", "gat")),
    *(
        case(layer, "stale", smooth_features=0.7, smooth_gradients=0.9, stages=2)
        for layer in ("resgcn", "gat")
    ),
    case("gcn", "stale", smooth_gradients=0.5, warmup=2),
    case("gcnii", "stale", ways=(1, 3), stages=2, optimizer="adam"),
    *(case(layer, "stale", recompute=True) for layer in ("gcnii", "gat")),
    case("gcn", "stale", graph=(("weighted", True), ("loops", True))),
    case("mixed", "stale", split=None),
    case("gcnii", "stale", stages=2, schedule="gpipe_2bp"),
]

SAMPLED = [
    *(case(layer, "sampled", rate=0.5) for layer in PULL),
    case("gcnii", "sampled", rate=0.3, ways=4),
    case("sage", "sampled", rate=0.4, stages=2, recompute=True),
    case("gin", "sampled", rate=0.5, stages=2, ways=(1, 3), optimizer="adam"),
    case("gcn", "sampled", rate=0.5, graph=(("weighted", True), ("loops", True))),
    case("gcnii", "sampled", rate=0.5, directed=False, stages=2, schedule="gpipe_2bp"),
]

QUANTISED = [
    *(case(layer, "quantised", bits=4) for layer in ("gcnii", "sage", "gat", "gen")),
    *(case(layer, "quantised", bits=2, ways=4) for layer in ("gcnii", "gat")),
    case("gin", "quantised", bits=8, stages=2, ways=(1, 3)),
    case("gat", "quantised", bits=2, stages=2, recompute=True, directed=False),
    case("gcn", "quantised", bits=4, graph=(("weighted", True), ("loops", True))),
]

BOUNDED = [
    *(case(layer, "bounded", period=3, steps=6) for layer in ("gcnii", "gat")),
    *(case(layer, "bounded", period=5, bound=1.0, steps=6) for layer in ("gcn", "gat")),
    case("gcnii", "bounded", period=4, bound=0.8, ways=4, warmup=2, steps=7),
    case("sage", "bounded", period=2, stages=2, ways=(1, 3), recompute=True),
    case("gen", "bounded", period=3, bound=1.0, stages=2),
]


def make(one, kind, **options):
    graph = one.build_graph()
    model = one.build_model(graph)
    specs = model.cut_specs(graph)
    of = dict(layers_and_ways(one, specs))
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[one.optimizer]
    optimizer = optimizer(model.parameters(), lr=one.learning_rate)
    history = one.config().history
    chunk_of = chunk_assignment(graph, one.mesh.num_chunks)
    return kind(model, graph, chunk_of, history, optimizer, one.seed, of, **options)


@cache
def reference(one):
    """[(step, bytes of the halo, control bytes, {age: rows})] of a case."""
    options = dict(one.halo)
    kind = KINDS[options.pop("mode")]
    made = make(one, kind, **options)
    return [(made.step(), made.bytes, made.control, made.ages) for _ in range(one.steps)]


def check(runs, one):
    wanted = reference(one)
    assert mismatches(runs[one], [step for step, *_ in wanted]) == []
    found = [record.bytes_sent for record in runs[one]]
    assert [sent.get("halo", 0) for sent in found] == [halo for _, halo, *_ in wanted]
    if isinstance(one.ways, int):
        # Each holder of a stage tells each other one which of its parameters have gradients.
        presence = one.ways * (one.ways - 1) * len(wanted[0][0].gradients)
        assert [sent["control"] - presence for sent in found] == [control for _, _, control, _ in wanted]
    assert all(halo > 0 for _, halo, *_ in wanted[:1])


@pytest.mark.parametrize("one", STALE, ids=str)
def test_rows_and_gradients_of_the_step_before(runs, one):
    check(runs, one)
    assert [record.rows_by_age for record in runs[one]] == [ages for *_, ages in reference(one)]
    exact = make(one, WaysReference)
    assert mismatches(runs[one], [exact.step() for _ in range(one.steps)]), "nothing was stale"


@pytest.mark.parametrize("one", SAMPLED, ids=str)
def test_a_sample_of_the_rows(runs, one):
    check(runs, one)


@pytest.mark.parametrize("one", QUANTISED, ids=str)
def test_rows_of_a_few_bits(runs, one):
    check(runs, one)


@pytest.mark.parametrize("one", BOUNDED, ids=str)
def test_rows_as_they_were_last_sent(runs, one):
    check(runs, one)
    assert [record.rows_by_age for record in runs[one]] == [ages for *_, ages in reference(one)]
    exact = make(one, WaysReference)
    assert mismatches(runs[one], [exact.step() for _ in range(one.steps)]), "nothing was late"
    if dict(one.halo).get("bound") is not None:
        ages = {age for record in runs[one] for age in record.rows_by_age}
        assert len(ages) > 2, "the bound decided nothing"


LIMITS = [
    *(case(layer, "sampled", rate=1.0) for layer in ("gcnii", "sage")),
    *(case(layer, "bounded", period=99, bound=0.0) for layer in ("gcnii", "gat")),
    case("gat", "bounded"),
]
"""Where an approximation ends: these must be exact."""


@pytest.mark.parametrize("one", LIMITS, ids=str)
def test_at_its_limit_an_approximation_is_the_exact_exchange(runs, one):
    exact = make(one, WaysReference)
    assert mismatches(runs[one], [exact.step() for _ in range(one.steps)]) == []


def evaluated_between(context, cases):
    """For the pool: losses and gradients of steps with an evaluation after each."""
    found = []
    for one in cases:
        trainer = make_trainer(one, context)
        for _ in range(one.steps):
            found.append((trainer.train_step().loss, trainer.gradients()))
            trainer.evaluate()
    return found


def test_evaluation_between_steps_changes_nothing(runs, pool):
    """It uses the buffers that rows of other ways stand in."""
    cases = [STALE[0], SAMPLED[0], QUANTISED[0], BOUNDED[0]]
    found = iter(pool.run(evaluated_between, 2, cases)[0])
    for one in cases:
        for record in runs[one]:
            loss, gradients = next(found)
            assert loss == record.loss
            assert all(torch.equal(gradients[name], g) for name, g in record.gradients.items())


def test_the_reference_without_approximation_is_full_batch(runs):
    for layer in ("gcnii", "gat"):
        one = Case(layer=layer, ways=2)
        exact = make(one, WaysReference)
        assert mismatches(runs[one], [exact.step() for _ in range(one.steps)]) == []


def test_both_kinds_of_operator_are_here():
    assert {one.layer in PULL for one in STALE} == {True, False}
