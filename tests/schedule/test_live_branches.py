"""Models with branches in real processes, stages as a graph and as a chain, against serial autograd.

On clusters of PubMed where `GNNPAR_TEST_DATA` is set, else of a tiny graph.
"""

from functools import cache

import pytest
import torch
from support.live import clusters_of, pubmed
from torch import nn
from torch.nn import functional as F

from gnnpar.config.schema import (
    BatchConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from gnnpar.dist import Mesh
from gnnpar.errors import InputError
from gnnpar.model import GAT, GCN, GCNII, Branch, LayerGraph
from gnnpar.schedule import Costs, simulate
from gnnpar.schedule.families import FAMILIES
from gnnpar.train.trainer import Trainer

STEPS = 2
TOLERANCE = 1e-10
P = 0.3
CLUSTERS = 6
WIDTH = 6


def two_towers(features, classes):
    """Two towers with encoders of their own, and a tail that joins them."""
    encode = {name: nn.Sequential(nn.Dropout(P), nn.Linear(features, WIDTH), nn.ReLU()) for name in "ab"}
    near = [encode["a"], GCN(WIDTH, WIDTH, dropout=P), GCN(WIDTH, WIDTH, dropout=P)]
    far = [encode["b"], GAT(WIDTH, 3, heads=2, dropout=P, attention_dropout=P)]
    branches = {
        "near": Branch(near, inputs="features"),
        "far": Branch(far, inputs="features"),
        "tail": Branch([GCN(2 * WIDTH, WIDTH, dropout=P)], inputs=("near", "far"), join="cat"),
    }
    return LayerGraph(branches, decoder=nn.Linear(WIDTH, classes))


def jumping(features, classes):
    """A stem, two branches from it of which one reads h0, and a tail that reads all of them."""
    branches = {
        "stem": Branch([GCN(WIDTH, WIDTH, dropout=P)]),
        "left": Branch([GCNII(WIDTH, 1, dropout=P), GCNII(WIDTH, 2, dropout=P)], inputs="stem"),
        "right": Branch([GCN(WIDTH, WIDTH, dropout=P), nn.LayerNorm(WIDTH)], inputs="stem"),
        "tail": Branch([], inputs=("stem", "left", "right"), join="sum"),
    }
    encoder = nn.Sequential(nn.Dropout(P), nn.Linear(features, WIDTH), nn.ReLU())
    return LayerGraph(branches, encoder=encoder, decoder=nn.Linear(WIDTH, classes))


MODELS = {"two_towers": two_towers, "jumping": jumping}
CASES = {
    # Stages as a graph.
    "towers, a stage each": ("two_towers", "graphpipe", (3, 2, 1), CLUSTERS),
    "towers, one cut": ("two_towers", "graphpipe", (2, 1, 2, 1), CLUSTERS),
    "towers, cut as measured": ("two_towers", "graphpipe", 4, CLUSTERS),
    "towers, exact": ("two_towers", "graphpipe", (3, 2, 1), 1),
    "towers, one shared": ("two_towers", "graphpipe", (3, 2, 1), CLUSTERS),
    "jumping": ("jumping", "graphpipe", (1, 2, 2, 1), CLUSTERS),
    "jumping, exact": ("jumping", "graphpipe", (1, 2, 2, 1), 1),
    # One after the other.
    "towers, 1F1B": ("two_towers", "one_f_one_b", (2, 2, 2), CLUSTERS),
    "jumping, interleaved": ("jumping", "interleaved", (1, 2, 2, 1), CLUSTERS),
    "jumping, split backward": ("jumping", "zb_h1", (2, 4), CLUSTERS),
    "towers, both ways": ("two_towers", "chimera", (4, 2), CLUSTERS),
}
STAGES = {"jumping, interleaved": 2}
"""Ranks of the schedule, where a rank has several stages."""
WAYS = {"towers, one shared": (1, 2, 1)}
EDGES = {
    "towers, a stage each": ((0, 2), (1, 2)),
    "towers, one cut": ((0, 1), (1, 3), (2, 3)),
    "jumping": ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3)),
}


@cache
def in_clusters(number):
    return clusters_of(pubmed(), number)


def make(name):
    graph = in_clusters(CLUSTERS).graph
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MODELS[name](graph.num_features, graph.num_classes).double()


def stages_of(case):
    split = CASES[case][2]
    return STAGES.get(case, split if isinstance(split, int) else len(split))


def ranks_of(case):
    return sum(WAYS[case]) if case in WAYS else stages_of(case)


def config_of(case):
    _, family, split, num_chunks = CASES[case]
    by_hand = None if isinstance(split, int) else split
    return RunConfig(
        dtype="float64",
        model=ModelConfig(name="custom", num_layers=6),
        batch=BatchConfig(num_chunks=num_chunks, kind="clusters" if num_chunks > 1 else "chunks"),
        schedule=ScheduleConfig(name=family),
        parallel=ParallelConfig(stages=stages_of(case), layers_per_stage=by_hand, ways=WAYS.get(case, 1)),
        optimizer=OptimizerConfig(name="adam"),
        train=TrainConfig(lr=0.01, weight_decay=5e-4),
    )


@cache
def serial(name, num_clusters):
    """Every step's loss and gradients, on the graph without edges between clusters, and the logits at the end
    on the graph with them."""
    chunked = in_clusters(num_clusters)
    graph = chunked.isolated.graph
    model = make(name).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    wanted = (graph.y >= 0) & graph.train_mask
    steps = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graph, seed=0, step=step)[wanted], graph.y[wanted])
        loss.backward()
        optimizer.step()
        steps.append((loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}))
    with torch.no_grad():
        return steps, model.eval()(chunked.graph)


def run_cases(context, cases):
    """For the pool: of every case, each step's loss and gradients, logits, edges and what was sent."""
    found = {}
    for case, (model, config, chunked) in cases.items():
        trainer = Trainer(model, chunked, config, context)
        steps = []
        for _ in range(STEPS):
            loss = trainer.train_step().loss
            steps.append((loss, {name: g.clone() for name, g in trainer.gradients().items()}))
        logits = trainer.evaluator.logits(trainer.feed.whole)
        sent = {kind: int(count) for kind, count in trainer.recorder.bytes_by_kind().items()}
        found[case] = steps, logits, trainer.schedule, trainer.layers_per_stage, sent
        context.barrier("before the next case")
    return found


@pytest.fixture(scope="module")
def live(pool):
    @cache
    def all_of(ranks):
        cases = {case: given(case) for case in CASES if ranks_of(case) == ranks}
        return pool.run(run_cases, ranks, cases, timeout_s=120)

    def given(case):
        config = config_of(case)
        return make(CASES[case][0]), config, in_clusters(Mesh.of(config).num_chunks)

    return lambda case: [rank[case] for rank in all_of(ranks_of(case))]


@pytest.mark.parametrize("case", CASES)
def test_branches_compute_what_serial_training_does(live, case):
    of_ranks = live(case)
    steps, logits = serial(CASES[case][0], Mesh.of(config_of(case)).num_chunks)
    for step, (wanted_loss, wanted) in enumerate(steps):
        largest = max(float(g.abs().max()) for g in wanted.values())
        held = set()
        for rank in of_ranks:
            loss, gradients = rank[0][step]
            assert abs(loss - wanted_loss) <= TOLERANCE * abs(wanted_loss)
            for name, g in gradients.items():
                assert float((g - wanted[name]).abs().max()) <= TOLERANCE * largest, (step, name)
            held |= set(gradients)
        assert held == wanted.keys()
    (found,) = (rank[1] for rank in of_ranks if rank[1] is not None)
    assert float((found - logits).abs().max()) <= 1e-8 * float(logits.abs().max())


@pytest.mark.parametrize("case", EDGES)
def test_the_stages_are_those_of_the_branches(live, case):
    _, _, schedule, layers, _ = live(case)[0]
    assert schedule.edges == EDGES[case] and not schedule.is_chain
    assert tuple(layers) == CASES[case][2]


def test_measured_stages_keep_to_their_branches(live):
    _, _, schedule, layers, _ = live("towers, cut as measured")[0]
    assert len(layers) == 4 and {3, 5, 6} <= {sum(layers[: i + 1]) for i in range(4)}
    assert not schedule.is_chain


def test_what_is_sent_is_what_branches_hand_over(live):
    """Both towers send the tail their rows and get their gradients: nothing else crosses."""
    ranks = live("towers, a stage each")
    tower = STEPS * in_clusters(CLUSTERS).graph.num_nodes * WIDTH * 8
    assert [rank[4]["stage"] for rank in ranks] == [tower, tower, 2 * tower]


def test_branches_side_by_side_take_less_time_than_one_after_the_other(live):
    costs = Costs(F=1, B=2)
    graph = live("towers, one cut")[0][2]
    chain = FAMILIES["one_f_one_b"](4, CLUSTERS)
    assert simulate(graph, costs).makespan == (CLUSTERS + 3 - 1) * 3
    assert simulate(chain, costs).makespan == (CLUSTERS + 4 - 1) * 3
    assert max(simulate(graph, costs).peak_in_flight) == 3 < max(simulate(chain, costs).peak_in_flight)


@pytest.mark.parametrize(
    ("family", "stages", "split", "words"),
    [
        (
            "graphpipe",
            2,
            None,
            ["parallel.stages: 2, but", "3 branches (near, far, tail)", "parallel.stages=3"],
        ),
        ("graphpipe", 2, None, ["schedule.name=one_f_one_b"]),
        ("graphpipe", 3, (2, 2, 2), ["[2, 2, 2] puts layers of several branches", "near 3, far 2, tail 1"]),
        ("graphpipe", 3, (2, 2, 2), ["use [3, 2, 1]", "schedule.name=one_f_one_b"]),
    ],
)
def test_stages_that_mix_branches_are_refused_with_a_cure(family, stages, split, words):
    from gnnpar.train.run import prepare

    graph = in_clusters(CLUSTERS).graph
    config = RunConfig(
        model=ModelConfig(name="custom", num_layers=6),
        schedule=ScheduleConfig(name=family),
        parallel=ParallelConfig(stages=stages, layers_per_stage=split),
        batch=BatchConfig(num_chunks=CLUSTERS, kind="clusters"),
    )
    with pytest.raises(InputError) as caught:
        prepare(config, graph, make("two_towers"))
    (fault,) = caught.value.faults
    for word in words:
        assert word in fault
