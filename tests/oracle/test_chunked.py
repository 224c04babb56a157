"""Chunks, histories and cross-chunk gradients equal the dense reference: loss, gradients, ages, shares."""

import pytest
from oracle.driver import Case, mismatches
from oracle.models import LAYER_TYPES

P = 2
STEPS = 1 + 2 * P + 1
MODES = ("latest", "snapshot", "drop")

GRID = [
    Case(layer=layer, stages=stages, chunks=chunks, mode=mode, gamma=gamma, period=P, steps=STEPS)
    for stages in (1, 2, 3)
    for layer in ("gcnii", "gat")
    for chunks in (4, 8)
    for mode in MODES
    for gamma in (0.0, 1.0, 2.0)
]


def chunked(layer, stages=2, chunks=4, mode="snapshot", gamma=2.0, **keys):
    return Case(layer=layer, stages=stages, chunks=chunks, mode=mode, gamma=gamma, **{"steps": STEPS} | keys)


OTHERS = [
    *(chunked(layer, mode=mode) for layer in LAYER_TYPES if layer not in ("gcnii", "gat") for mode in MODES),
    *(chunked(layer, gamma=gamma, chunks=8) for layer in ("sage", "gen", "resgcn") for gamma in (0.0, 1.0)),
    *(chunked(layer, directed=False, mode=mode) for layer in LAYER_TYPES for mode in MODES),
    *(chunked(layer, recompute=True, mode=mode) for layer in LAYER_TYPES for mode in MODES),
    *(chunked(layer, optimizer="adam") for layer in LAYER_TYPES),
    *(
        chunked(layer, graph=(("weighted", True),), mode=mode)
        for layer in ("gcn", "sage", "gen")
        for mode in MODES
    ),
    *(chunked("gcnii", graph=(("sparse", True),), stages=stages) for stages in (1, 2)),
    *(chunked(layer, graph=(("multi_label", True),)) for layer in ("gcnii", "gat")),
    *(chunked("gcn", stages=3, model=(("jumping_knowledge", jump),)) for jump in ("cat", "max", "sum")),
    *(chunked("gcn", model=(("norm", "batch"),), recompute=recompute) for recompute in (False, True)),
    *(chunked(layer, warmup=3, period=3, steps=3 + 2 * 3 + 1) for layer in ("gcnii", "gat")),
    *(chunked("gcnii", mode=mode, warmup=2) for mode in ("latest", "drop")),
    chunked("gcnii", mode="snapshot", period=1),
    chunked("gcnii", shuffle=False),
    *(chunked(layer, graph=(("loops", True),)) for layer in LAYER_TYPES),
    *(
        chunked(layer, stages=stages, mode=mode)
        for layer in ("mixed", "pyg")
        for stages in (1, 3)
        for mode in MODES
    ),
    *(chunked(layer, recompute=True, mode=mode) for layer in ("mixed", "pyg") for mode in MODES),
    *(chunked("gen+edges", graph=(("edge_features", 2),), mode=mode) for mode in MODES),
    *(chunked(layer, gamma=0.7) for layer in ("gcnii", "gat")),
    chunked("gcnii", stages=4, chunks=5),
    chunked("gcnii", stages=3, split=(1, 2, 1)),
]


@pytest.mark.parametrize("case", list(dict.fromkeys(GRID + OTHERS)), ids=str)
def test_equals_the_dense_reference(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []


@pytest.mark.parametrize("case", [c for c in GRID + OTHERS if c.layer == "gcnii"], ids=str)
def test_order_of_chunks(runs, case):
    orders = [record.order for record in runs[case]]
    assert all(sorted(order) == list(range(case.chunks)) for order in orders)
    assert (len(set(orders)) > 1) == case.shuffle


AGES = [
    chunked("gcnii", stages=1, period=period, warmup=warmup, steps=warmup + 2 * period + 1)
    for warmup in (1, 3)
    for period in (1, 2, 3)
]


@pytest.mark.parametrize("case", AGES, ids=str)
def test_ages_of_snapshots(runs, case):
    """Snapshots close at steps w-1, w-1+P, …: a step reads the last one that closed before it."""
    closed = [case.warmup - 1 + k * case.period for k in range(5)]
    for t, record in enumerate(runs[case]):
        assert record.age == (t - max(c for c in closed if c < t) if t >= case.warmup else 0), t
        assert (record.share > 0) == (t >= case.warmup)
