"""Several steps an epoch, chunks that run together, compensation and refreshes equal the dense reference."""

import pytest
from oracle.driver import Case, mismatches, run_reference
from oracle.models import LAYER_TYPES


def partial(layer, chunks=6, parts=3, stages=1, **keys):
    keys = {"gamma": 0.0, "steps": 6} | keys
    return Case(layer=layer, chunks=chunks, parts=parts, stages=stages, **keys)


def compensated(layer, **keys):
    return partial(layer, compensate=True, **({"gamma": 1.0, "warmup": 0} | keys))


CASES = [
    *(partial(layer, joined=2, warmup=0) for layer in LAYER_TYPES),  # GAS
    *(
        partial(layer, stages=stages, joined=joined, parts=parts, gamma=gamma)
        for layer in ("gcnii", "gat")
        for stages, joined, parts, gamma in ((1, 1, 3, 1.0), (2, 1, 2, 2.0), (2, 2, 1, 1.0), (2, 1, 6, 0.0))
    ),
    *(partial(layer, mode="drop", stages=2, joined=2) for layer in ("gcnii", "gat")),
    *(partial(layer, recompute=True, gamma=2.0) for layer in ("gcnii", "gat", "gen")),
    *(partial(layer, warmup=2, refresh=2, parts=2, stages=2) for layer in ("gcnii", "gat")),
    *(partial(layer, warmup=0, refresh=3, parts=1) for layer in ("gcnii", "gat")),
    partial("gat", warmup=0, refresh=3, parts=1, recompute=True),
    partial("gcn", model=(("norm", "batch"),), warmup=0),
    *(partial(layer, warmup=0, stages=2) for layer in ("mixed", "pyg")),
    partial("gcnii", parts=6, steps=8, graph=(("multi_label", True),), optimizer="adam"),
    *(compensated(layer, joined=2) for layer in LAYER_TYPES),
    *(compensated(layer, stages=2, parts=2) for layer in ("gcnii", "gat", "mixed")),
    *(compensated(layer, recompute=True) for layer in ("gcnii", "gat")),
    *(
        compensated(layer, ways=2, chunks=4, parts=2, joined=joined)
        for layer in ("gcnii", "gat")
        for joined in (1, 2)
    ),
    *(
        partial(layer, ways=2, chunks=4, parts=2, warmup=warmup)
        for layer in ("gcnii", "gat")
        for warmup in (0, 1)
    ),
    *(partial(layer, chunks=8, parts=2, stages=2, schedule="chimera") for layer in ("gcnii", "gat")),
    partial("gcnii", chunks=8, parts=2, stages=2, schedule="chimera", warmup=0, refresh=2),
    partial("gcnii", ways=2, chunks=4, parts=2, joined=2, gamma=2.0, directed=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_dense_reference(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []


OTHERWISE = [
    (CASES[0], {"warmup": 1}),  # no history is filled before the first step
    (compensated("gcn", joined=2), {"compensate": False}),
    (compensated("gat", joined=2), {"compensate": False}),
    (partial("gcnii", warmup=2, refresh=2, parts=2, stages=2), {"refresh_every": None}),
]


@pytest.mark.parametrize(("case", "change"), OTHERWISE, ids=str)
def test_the_comparison_can_fail(runs, case, change):
    orders = [record.order for record in runs[case]]
    assert any("gradient" in line for line in mismatches(runs[case], run_reference(case, orders, **change)))
