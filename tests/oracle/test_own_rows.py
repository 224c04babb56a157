"""Ways that keep rows of their own only, live: features split for every sum, or rows fetched part by part.
Loss and every gradient are those of full-batch training, and bytes are exactly their closed forms.
"""

import math

import pytest
import torch
from oracle.driver import TOLERANCE, Case, make_trainer, mismatches, run_reference
from oracle.models import LAYER_TYPES, PULL
from oracle.test_ways import count_rows, layers_and_ways

from gnnpar.errors import InputError
from gnnpar.parallel.features import slice_of


def case(layer, kind, stages=1, ways=2, **keys):
    """One chunk a way; layers split evenly."""
    how = {"sliced": True} if kind == "features" else {"sequential": True}
    split = None if "split" in keys else (4 // stages,) * stages
    return Case(layer=layer, stages=stages, ways=ways, **({"split": split, "steps": 2} | how | keys))


LAYERS = [("features", layer) for layer in PULL] + [("sequential", layer) for layer in LAYER_TYPES]
CASES = [
    *(case(layer, kind, directed=directed) for kind, layer in LAYERS for directed in (True, False)),
    *(case(layer, kind, ways=4) for kind, layer in LAYERS),
    *(case(layer, kind, stages=2, directed=layer == "gat") for kind, layer in LAYERS[1::2]),
    *(case("gcnii", kind, ways=3, optimizer="adam", clip=1.0) for kind in ("features", "sequential")),
    *(case("gcnii", kind, 2, (1, 3), split=(1, 3)) for kind in ("features", "sequential")),
    *(case(layer, "sequential", 2, (2, 1)) for layer in ("gcn", "gat")),
    case("gcn", "features", 2, (2, 1)),
    *(
        case(layer, kind, recompute=True)
        for kind, layer in LAYERS
        if layer in ("gcnii", "sage", "gat", "gen")
    ),
    *(
        case("gcn", kind, graph=(("weighted", True), ("loops", True)), directed=directed)
        for kind in ("features", "sequential")
        for directed in (True, False)
    ),
    case("gen", "sequential", graph=(("weighted", True), ("loops", True))),
    case("gen+edges", "sequential", graph=(("edge_features", 2),), recompute=True),
    *(case(layer, "sequential", split=None) for layer in ("mixed", "pyg", "branching")),
    *(case("gcnii", kind, 2, schedule="gpipe_2bp") for kind in ("features", "sequential")),
    *(case("sage", kind, 2, split=(1,) * 4, schedule="looped_bfs") for kind in ("features", "sequential")),
    *(case("gcnii", kind, mode="snapshot") for kind in ("features", "sequential")),
    case("gcn", "features", graph=(("sparse", True),), model=(("jumping_knowledge", "cat"),)),
    case("gcn", "features", ways=4, model=(("hidden", 3),)),  # a way without a feature
    case("gcn", "features", ways=4, model=(("hidden", 5),)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradients_are_those_of_full_batch(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_are_their_closed_form(runs, case):
    graph = case.build_graph()
    model = case.build_model(graph)
    operators, specs = model.all_layers(), model.cut_specs(graph)
    for step, record in enumerate(runs[case]):
        wanted = 0
        for layer, ways in layers_and_ways(case, specs):
            width = math.prod(specs[layer].tail)
            forward, by_rows, by_columns = count_rows(case, graph, record.order, step, ways)
            if case.sliced:
                wanted += 4 * 8 * elements_of_slices(rows_of_ways(case, ways), width)
            elif type(operators[layer].operator).__name__ == "Pull":
                wanted += 8 * width * (forward + by_rows)
            else:
                wanted += 8 * width * (forward * (1 + case.recompute) + by_columns)
        kind = "feature" if case.sliced else "halo"
        assert record.bytes_sent[kind] == wanted > 0
        assert record.bytes_sent.keys() <= {kind, "stage", "weight", "control"}


def rows_of_ways(case, ways):
    from support.graphs import chunk_assignment

    chunks = torch.bincount(chunk_assignment(case.build_graph(), case.mesh.num_chunks))
    return chunks.view(ways, -1).sum(1).tolist()


def elements_of_slices(rows, width):
    """What all ways send of a matrix `[N, K]` to turn rows into columns: all but what they keep."""
    columns = [one.stop - one.start for one in (slice_of(width, w, len(rows)) for w in range(len(rows)))]
    assert sum(columns) == width and max(columns) - min(columns) <= 1
    return sum(rows) * width - sum(n * k for n, k in zip(rows, columns, strict=True))


@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_the_comparison_can_fail(runs, layer):
    """Without the edges between ways, gradients differ."""
    kind = case(layer, "sequential", 1, 2, directed=True)
    orders = [record.order for record in runs[kind]]
    assert mismatches(runs[kind], run_reference(kind, orders, seed=kind.seed + 1))


def evaluate(context, case):
    """For the pool: logits after training where this rank has them, and what aggregations keep."""
    trainer = make_trainer(case, context)
    for _ in range(case.steps):
        trainer.train_step()
    logits = trainer.evaluator.logits(trainer.feed.whole)
    again = trainer.evaluator.logits(trainer.feed.whole)
    assert logits is None or torch.equal(logits, again)
    trainer.train_step()  # evaluation leaves training alone
    (stage,) = trainer.executor.stages.values()
    kept = [one.cut.buffer.shape[0] for one in stage.aggregations]
    own = sum(chunk.num_rows for chunk in trainer.chunked.chunks if chunk.index == trainer.way)
    state = {name: value.clone() for name, value in trainer.state().items()}
    return logits, state, kept, own


@pytest.mark.parametrize("kind", [case("gcnii", "features"), case("gat", "sequential")], ids=str)
def test_ways_keep_their_own_rows_and_evaluation_is_exact(pool, kind):
    more = [pool.run(evaluate, 2, kind, timeout_s=60), pool.run(evaluate, 2, replaced(kind), timeout_s=60)]
    (logits, state, kept, own), (nothing, _, kept_there, own_there) = more[0]
    assert nothing is None and own + own_there == 40
    assert set(kept) == {own} and set(kept_there) == {own_there}
    plain_logits, plain_state, plain_kept, _ = more[1][0]
    assert set(plain_kept) == {40}
    assert float((logits - plain_logits).abs().max()) <= TOLERANCE * float(plain_logits.abs().max())
    largest = max(float(value.abs().max()) for value in plain_state.values())
    assert all(float((state[n] - plain_state[n]).abs().max()) <= TOLERANCE * largest for n in state)


def replaced(case):
    from dataclasses import replace

    return replace(case, sliced=False, sequential=False)


def refused(context, case):
    """For the pool: why a trainer cannot be made."""
    try:
        make_trainer(case, context)
    except InputError as error:
        return error.faults
    return None


def test_features_of_layers_that_read_whole_rows_are_not_split(pool):
    for faults in pool.run(refused, 2, case("mixed", "features", split=None)):
        assert len(faults) == 1 and "parallel.split: layers.2" in faults[0] and "vertices" in faults[0]
