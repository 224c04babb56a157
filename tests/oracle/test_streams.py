"""Chunks dealt to two replicas in opposite directions: each reads the other's chunks from history.

Equal the dense reference with two streams: loss, gradients (the same bits in all copies), ages, shares.
"""

import pytest
from oracle.driver import Case, mismatches, run_reference, run_trainer
from oracle.models import LAYER_TYPES, build

from gnnpar.schedule.families import FAMILIES

STEPS = 6


def dealt(schedule, layer="gcnii", stages=2, mode="latest", chunks=4, **keys):
    num_layers = max(FAMILIES[schedule](stages, chunks).num_stages, 2)
    keys = {"steps": STEPS, "gamma": 0.0, "split": (1,) * num_layers} | keys
    return Case(
        layer=layer, schedule=schedule, stages=stages, chunks=chunks, mode=mode, num_layers=num_layers, **keys
    )


CASES = [
    *(
        dealt(schedule, layer, mode=mode)
        for schedule in ("chimera", "bitpipe")
        for layer in ("gcnii", "gat")
        for mode in ("latest", "snapshot", "drop")
    ),
    *(dealt("chimera", layer) for layer in LAYER_TYPES if layer not in ("gcnii", "gat")),
    *(dealt("chimera", layer, mode="snapshot", directed=False) for layer in ("gcn", "gat")),
    *(
        dealt("chimera", layer, mode=mode, recompute=True)
        for layer in ("gcnii", "gat")
        for mode in ("latest", "snapshot")
    ),
    *(dealt("bitpipe", layer, optimizer="adam", chunks=8) for layer in ("gcnii", "gat")),
    *(dealt("chimera", mode=mode, warmup=3, period=3, steps=9) for mode in ("latest", "snapshot")),
    dealt("chimera", "gcn", model=(("norm", "layer"), ("jumping_knowledge", "cat"))),
    dealt("chimera", "gat", chunks=2),
    dealt("chimera", shuffle=False, clip=1e-2, steps=3),
    *(dealt(schedule, "gat", mode="snapshot") for schedule in ("gems", "dualpipe")),
    dealt("chimera", stages=4, chunks=8),
    dealt("chimera", "gat", stages=4, chunks=4, mode="snapshot", optimizer="adam"),
    dealt("bitpipe", stages=4, chunks=8, mode="snapshot"),
    dealt("bitpipe", "gat", stages=4, chunks=4),
]


@pytest.fixture(scope="module")
def records(pool):
    found = {}

    def of(case):
        if case not in found:
            same = [other for other in CASES if other.stages == case.stages]
            found.update(run_trainer(pool, same))
        return found[case]

    return of


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_dense_reference_with_two_streams(records, case):
    found = records(case)
    orders = tuple(record.order for record in found)
    wanted = run_reference(case, orders)
    if case.clip is not None:
        wanted = [clipped(step, case.clip) for step in wanted[:1]]
        found = found[:1]  # later steps of the reference are not clipped
    assert mismatches(found, wanted) == []


def clipped(step, most):
    norm = sum(float(g.square().sum()) for g in step.gradients.values()) ** 0.5
    assert norm > most
    return step._replace(gradients={name: g * (most / norm) for name, g in step.gradients.items()})


@pytest.mark.parametrize("case", [c for c in CASES if c.schedule == "chimera" and c.chunks > 2][:8], ids=str)
def test_one_stream_would_not_do(records, case):
    """The comparison can fail: the reference that reads all earlier chunks differs."""
    found = records(case)
    orders = tuple(record.order for record in found)
    assert mismatches(found, run_reference(case, orders, streams=None))


@pytest.mark.parametrize("case", [c for c in CASES if c.layer in ("gcnii", "gat")], ids=str)
def test_bytes_of_histories_are_their_closed_form(records, case):
    """A copy of a stage lacks the rows that the other wrote: N · K a layer, where a later step reads them."""
    graph = case.build_graph()
    width = build(case.layer, graph, num_layers=case.num_layers).cut_specs(graph)[1].tail[0]
    whole = 8 * graph.num_nodes * width * case.num_layers
    for step, record in enumerate(records(case)):
        kept = {
            "drop": False,
            "latest": step >= case.warmup - 1,
            "snapshot": step >= case.warmup - 1 and (step - case.warmup + 1) % case.period == 0,
        }[case.mode]
        assert record.bytes_sent.get("history", 0) == kept * whole, f"step {step}"
