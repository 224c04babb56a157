"""Every family in real processes: clusters against serial autograd, chunks against the dense reference.

PubMed in clusters where `GNNPAR_TEST_DATA` is set, else a tiny graph.
"""

from functools import cache

import pytest
import torch
from oracle.driver import Case, mismatches, run_reference, run_trainer
from support.live import clusters_of, config_of, differences, pubmed, record_steps, serial_steps

from gnnpar.config.schema import BatchConfig, ParallelConfig, RunConfig, ScheduleConfig, TrainConfig
from gnnpar.errors import InputError
from gnnpar.schedule.families import FAMILIES
from gnnpar.train.job import make_model
from gnnpar.train.metrics import score
from gnnpar.train.order import build_schedule
from gnnpar.train.trainer import Trainer

STEPS = 2
TOLERANCE = 1e-10
COUNTS = {2: 4, 4: 8}
"""Ranks → micro-batches."""
JOINED = [name for name in FAMILIES if name != "local_learning"]
"""Families that carry gradients from stage to stage."""
CASES = [(name, ranks) for name in JOINED for ranks in COUNTS]


@cache
def clusters(ranks):
    """A graph in as many disjoint clusters as there are micro-batches."""
    return clusters_of(pubmed(), COUNTS[ranks])


@cache
def serial(ranks):
    return serial_steps(config_of("gpipe", ranks, COUNTS[ranks]), clusters(ranks), STEPS)


def run_families(context, configs, chunked):
    """For the pool: what this rank saw of each configuration's steps, and what it evaluated."""
    found = {}
    for config in configs:
        trainer = Trainer(make_model(config, chunked.graph), chunked, config, context)
        steps = record_steps(trainer, STEPS)
        logits = trainer.evaluator.logits(trainer.feed.whole)
        found[config.schedule.name] = steps, logits, trainer.evaluate()
        context.barrier("before the next family")
    return found


def evaluated(ranks):
    """Logits of the whole graph, edges between clusters included, after the last step."""
    graph = clusters(ranks).graph
    model = make_model(config_of("gpipe", ranks, COUNTS[ranks]), graph).double().eval()
    model.load_state_dict(serial(ranks)[-1].parameters, strict=False)
    with torch.no_grad():
        return model(graph)


@pytest.fixture(scope="module")
def live(pool):
    """`live(name, ranks)`: every rank's steps; all families of one number of ranks run in one call."""

    @cache
    def all_of(ranks):
        configs = [config_of(name, count, COUNTS[count]) for name, count in CASES if count == ranks]
        return pool.run(run_families, ranks, configs, clusters(ranks), timeout_s=120)

    return lambda name, ranks: [rank[name] for rank in all_of(ranks)]


@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_a_family_computes_what_serial_training_does(live, name, ranks):
    replicas = build_schedule(config_of(name, ranks, COUNTS[ranks])).num_replicas
    of_ranks = [steps for steps, _, _ in live(name, ranks)]
    for step, wanted in enumerate(serial(ranks)):
        losses = {steps[step][0] for steps in of_ranks}
        assert len(losses) == 1 and abs(losses.pop() - wanted.loss) <= TOLERANCE * abs(wanted.loss)
        held = {}
        for steps in of_ranks:
            for (replica, _), gradients, parameters in steps[step][1]:
                assert differences(gradients, wanted.gradients) <= TOLERANCE, f"step {step}"
                assert differences(parameters, wanted.parameters) <= TOLERANCE, f"step {step}"
                for key, value in parameters.items():
                    held.setdefault(key, {})[replica] = value
        assert held.keys() == wanted.gradients.keys()
        for key, copies in held.items():
            assert sorted(copies) == list(range(replicas))
            equal = all(torch.equal(value, copies[0]) for value in copies.values())
            assert equal, f"step {step}: replicas of {key} differ"


@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_a_family_evaluates_the_whole_graph(live, name, ranks):
    of_ranks = live(name, ranks)
    wanted, graph = evaluated(ranks), clusters(ranks).graph
    (logits,) = (logits for _, logits, _ in of_ranks if logits is not None)  # where the last stage is
    assert logits.shape == wanted.shape
    assert float((logits - wanted).abs().max()) <= 1e-8 * float(wanted.abs().max())
    scores = [scores for _, _, scores in of_ranks]
    assert {(s.train, s.val, s.test) for s in scores} == {(scores[0].train, scores[0].val, scores[0].test)}
    assert scores[0].test == score(logits, graph.y, graph.test_mask, "accuracy")


@pytest.mark.parametrize("name", ["chimera", "zb_v"])
def test_gradients_are_clipped_to_the_norm_of_all_stages_each_once(pool, name):
    train = TrainConfig(lr=0.01, weight_decay=5e-4, grad_clip=1e-3)
    ranks = pool.run(run_families, 2, [config_of(name, 2, COUNTS[2], train=train)], clusters(2), timeout_s=60)
    wanted = serial(2)[0].gradients
    norm = torch.stack([g.square().sum() for g in wanted.values()]).sum().sqrt()
    assert norm > 1e-2
    clipped = {key: g * (1e-3 / norm) for key, g in wanted.items()}
    for steps, _, _ in (rank[name] for rank in ranks):
        for _, gradients, _ in steps[0][1]:
            assert differences(gradients, clipped) <= TOLERANCE


def chunked_case(schedule, layer, gamma, mode, ranks=2, **keys):
    """On dependent chunks with history; as many graph layers as the schedule needs stages."""
    num_layers = len_of(schedule, ranks)
    return Case(
        layer=layer,
        schedule=schedule,
        stages=ranks,
        chunks=4,
        gamma=gamma,
        mode=mode,
        steps=4,
        num_layers=num_layers,
        split=(1,) * num_layers,
        **keys,
    )


def len_of(schedule, ranks):
    return FAMILIES[schedule](ranks, 4).num_stages


def allowed(schedule, gamma):
    try:
        build_schedule(chunked_case(schedule, "gcnii", gamma, "latest").config())
    except InputError:
        return False
    return True


ACCUMULATING = [
    chunked_case(schedule, layer, 1.0, mode, recompute=recompute)
    for schedule in ("gpipe", "looped_bfs", "gpipe_2bp")
    for layer, mode, recompute in (
        ("gcnii", "latest", False),
        ("gat", "snapshot", True),
        ("gin", "latest", True),
        ("gcn", "drop", False),
    )
]
DROPPING = [
    chunked_case(schedule, layer, 0.0, mode, recompute=recompute)
    for schedule in JOINED
    if allowed(schedule, 0.0)
    for layer, mode, recompute in (
        ("gcnii", "latest", False),
        ("gin", "snapshot", False),
        ("gat", "latest", True),
    )
]
CHUNKED = ACCUMULATING + DROPPING


@pytest.fixture(scope="module")
def chunked_runs(pool):
    @cache
    def all_of():
        return run_trainer(pool, CHUNKED)

    return lambda case: all_of()[case]


@pytest.mark.parametrize("case", CHUNKED, ids=str)
def test_chunks_with_history_are_the_dense_reference(chunked_runs, case):
    records = chunked_runs(case)
    assert any(record.share > 0 for record in records) or case.mode == "drop"
    orders = tuple(record.order for record in records)
    assert mismatches(records, run_reference(case, orders)) == []


def test_which_families_may_run_on_chunks():
    assert {name for name in JOINED if allowed(name, 1.0)} == {"gpipe", "gpipe_2bp", "looped_bfs"}
    dropping = {case.schedule for case in DROPPING}
    assert {"one_f_one_b", "zb_h1", "naive_2bp", "dapple_pa"} <= dropping
    assert {"chimera", "gems", "bitpipe", "dualpipe"} <= dropping


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        (
            "one_f_one_b",
            {"batch": BatchConfig(num_chunks=4)},
            ["schedule.name=gpipe", "history.gamma=0", ">0B0<"],
        ),
        (
            "chimera",
            {"batch": BatchConfig(num_chunks=4)},
            ["schedule.name: chimera", "keep chimera and drop gradients", "history.gamma=0"],
        ),
        (
            "chimera",
            {"batch": BatchConfig(num_chunks=5, kind="clusters")},
            ["batch.num_chunks: must be even"],
        ),
        ("bitpipe", {"parallel": ParallelConfig(stages=3)}, ["parallel.stages: must be even", "use 4"]),
        ("gpip", {}, ["schedule.name: there is no 'gpip'", "gpipe_2bp"]),
        (
            "gpipe",
            {"schedule": ScheduleConfig(name="gpipe", waves=2)},
            ["schedule.waves: not an option of gpipe"],
        ),
    ],
)
def test_what_cannot_run_is_refused_with_a_cure(name, keys, words):
    defaults = {
        "schedule": ScheduleConfig(name=name),
        "parallel": ParallelConfig(stages=2),
        "batch": BatchConfig(num_chunks=4, kind="clusters"),
    }
    with pytest.raises(InputError) as caught:
        build_schedule(RunConfig(**defaults | keys))
    (fault,) = caught.value.faults
    for word in words:
        assert word in fault
