"""The seven families that torch.distributed.pipelining also has: the same actions, the same gradients live.

Live, both pipelines train one GCN with keyed dropout from the same parameters on clusters of equal size:
gnnpar on the graph, torch on the rows of one cluster a micro-batch, whose dense normalised adjacency is an
argument of every stage. Serial autograd over all clusters is the third opinion.
"""

from functools import cache
from unittest import mock

import pytest
import torch
from support.graphs import tiny_graph
from support.live import config_of, differences, serial_steps, train_all
from torch import nn
from torch.nn import functional as F

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, ModelConfig, ScheduleConfig
from gnnpar.errors import InputError
from gnnpar.model.rows import Rows
from gnnpar.schedule import lower
from gnnpar.schedule.families import FAMILIES
from gnnpar.schedule.torch_text import to_torch_csv
from gnnpar.train.job import make_model

SHARED = [
    ("gpipe", "GPipe", 1, {}),
    ("one_f_one_b", "1F1B", 1, {}),
    ("looped_bfs", "LoopedBFS", 2, {}),
    ("looped_bfs", "LoopedBFS", 3, {"chunks": 3}),
    ("interleaved", "Interleaved1F1B", 2, {}),
    ("interleaved", "Interleaved1F1B", 3, {"chunks": 3}),
    ("zb_h1", "InterleavedZeroBubble", 1, {}),
    ("zb_h1", "InterleavedZeroBubble", 2, {"chunks": 2}),
    ("zb_v", "ZBVZeroBubble", 2, {}),
    ("dualpipe_v", "DualPipeV", 2, {}),
]


def theirs(name, num_ranks, num_micro_batches, stages_per_rank):
    """torch's own order; it wants stage objects, of which it reads three numbers."""
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
    from torch.distributed.pipelining.stage import PipelineStage

    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod = 0, num_ranks, None
    stage.num_stages = num_ranks * stages_per_rank
    kind = get_schedule_class(name)
    stages = stage if issubclass(kind, PipelineScheduleSingle) else [stage] * stages_per_rank
    order = kind(stages, num_micro_batches).pipeline_order
    return [
        [str(action) for action in order[rank] if action is not None and "REDUCE" not in str(action)]
        for rank in range(num_ranks)
    ]


def ours(name, num_ranks, num_micro_batches, options):
    text = to_torch_csv(FAMILIES[name](num_ranks, num_micro_batches, **options))
    return [line.split(",") for line in text.splitlines()]


@pytest.mark.parametrize(("name", "torch_name", "stages_per_rank", "options"), SHARED)
@pytest.mark.parametrize(
    ("num_ranks", "num_micro_batches"), [(2, 4), (2, 6), (3, 6), (4, 8), (4, 12), (8, 16)]
)
def test_same_order_on_every_rank(name, torch_name, stages_per_rank, options, num_ranks, num_micro_batches):
    expected = theirs(torch_name, num_ranks, num_micro_batches, stages_per_rank)
    mine = ours(name, num_ranks, num_micro_batches, options)
    if name == "gpipe":
        # Ours goes backward in reverse, so that chunks can accumulate gradients; torch in order.
        forwards = [row[:num_micro_batches] for row in mine]
        mine = [front + row[: num_micro_batches - 1 : -1] for front, row in zip(forwards, mine, strict=True)]
    if name == "one_f_one_b":
        # torch 2.13 numbers the forwards of its last rank, which has no warm-up, from 1.
        last = num_ranks - 1
        wrong = [f"{last}F{batch + 1}" for batch in range(num_micro_batches)]
        assert [cell for cell in expected[last] if "F" in cell] == wrong
        expected[last] = [f"{last}F{wrong.index(cell)}" if cell in wrong else cell for cell in expected[last]]
    assert mine == expected


@pytest.mark.parametrize(("name", "torch_name", "stages_per_rank", "options"), SHARED)
def test_torch_reads_our_text(name, torch_name, stages_per_rank, options):
    from torch.distributed.pipelining.schedules import _Action

    for row in ours(name, 2, 4, options):
        assert [str(_Action.from_str(cell)) for cell in row] == row


@pytest.mark.parametrize(
    "schedule", [FAMILIES["chimera"](4, 4), FAMILIES["graphpipe"](5, 4), lower(FAMILIES["gpipe"](2, 2))]
)
def test_what_torch_has_no_form_for_is_refused(schedule):
    with pytest.raises(InputError, match="one replica and a chain"):
        to_torch_csv(schedule)


LIVE_COUNTS = {2: 4, 4: 8}
"""Ranks → micro-batches."""
NUM_LAYERS = 12
TOLERANCE = 1e-10
LIVE = [(entry, ranks) for ranks in LIVE_COUNTS for entry in SHARED]


def live_config(name, ranks, options):
    return config_of(
        name,
        ranks,
        LIVE_COUNTS[ranks],
        schedule=ScheduleConfig(name=name, **options),
        model=ModelConfig(name="gcn", num_layers=NUM_LAYERS, hidden=8, dropout=0.2),
        batch=BatchConfig(num_chunks=LIVE_COUNTS[ranks], kind="clusters", shuffle=False),
    )


@cache
def equal_clusters(number):
    graph = tiny_graph(num_nodes=80)
    return ChunkedGraph(graph, tuple(range(0, 81, 80 // number))).to(torch.float64, torch.device("cpu"))


class TorchStage(nn.Module):
    """Some consecutive layers of our GCN, its formula written out over the rows of one cluster.

    Args:
        layers: (global index, layer); index 0 is the encoder, `last` the decoder.
    """

    def __init__(self, layers, seed, last):
        super().__init__()
        self.indices, self.seed, self.last = [index for index, _ in layers], seed, last
        self.layers = nn.ModuleList(layer for _, layer in layers)

    def forward(self, h, adjacency, ids):
        for index, layer in zip(self.indices, self.layers, strict=True):
            h = Rows(ids, self.seed, 0, index, True).dropout(h, layer.dropout)
            if index == 0:
                h = torch.relu(h @ layer.weight + layer.bias)
            elif index == self.last:
                h = layer.linear(h)
            else:
                h = torch.relu(adjacency @ layer.linear(h) + layer.bias)
        return h


def block_adjacency(graph, size):
    """`[N, size]`: of every row, D^-1/2 (A + I) D^-1/2 within its cluster, dense."""
    full = torch.eye(graph.num_nodes, dtype=torch.float64)
    full[graph.destinations, graph.indices.long()] += 1.0
    scale = full.sum(1).rsqrt()
    full = scale[:, None] * full * scale
    starts = range(0, graph.num_nodes, size)
    return torch.cat([full[start : start + size, start : start + size] for start in starts])


def our_gradients(context, configs, chunked):
    """For the pool: (loss, gradients by global name) of this rank's stages, for each configuration."""
    return [
        (loss, {name: g for _, gradients, _ in held for name, g in gradients.items()})
        for ((loss, held),) in train_all(context, configs, chunked, 1)
    ]


def torch_gradients(context, entries, ranks, chunked):
    """For the pool: (sum of losses, gradients by global name) of this rank's stages, for each entry."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    graph, batches = chunked.isolated.graph, len(chunked.offsets) - 1
    target = torch.where(graph.train_mask & (graph.y >= 0), graph.y, -1)
    constants = {"adjacency": block_adjacency(graph, graph.num_nodes // batches), "ids": graph.node_ids}

    def loss_of(logits, labels):
        return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / (target >= 0).sum()

    found = []
    for name, torch_name, _, options in entries:
        config = live_config(name, ranks, options)
        placement = FAMILIES[name](ranks, batches, **options).placement[0]
        model = make_model(config, chunked.graph).double()
        layers, names = list(enumerate(model.all_layers())), {p: n for n, p in model.named_parameters()}
        stages, start = [], 0
        for stage, count in enumerate(config.parallel.layers_per_stage):
            # The encoder belongs to the first stage, the decoder to the last.
            stop = start + count + (stage == 0) + (stage == len(placement) - 1)
            if placement[stage] == context.rank:
                module = TorchStage(layers[start:stop], config.seed, len(layers) - 1)
                stages.append(PipelineStage(module, stage, len(placement), context.device))
            start = stop
        kind = get_schedule_class(torch_name)
        single = issubclass(kind, PipelineScheduleSingle)
        pipeline = kind(stages[0] if single else stages, batches, loss_fn=loss_of, scale_grads=False)
        losses = []
        first = (graph.x,) if any(stage.is_first for stage in stages) else ()
        last = {"target": target, "losses": losses} if any(stage.is_last for stage in stages) else {}
        pipeline.step(*first, **last, **constants)
        gradients = {names[p]: p.grad for stage in stages for p in stage.submod.parameters()}
        found.append((sum(float(loss) for loss in losses), gradients))
        context.barrier("before the next schedule")
    return found


@pytest.fixture(scope="module")
def live(pool):
    """`live(entry, ranks)`: (ours, torch's), each the loss and the gradients of the whole model."""

    @cache
    def all_of(ranks):
        chunked = equal_clusters(LIVE_COUNTS[ranks])
        configs = [live_config(name, ranks, options) for name, _, _, options in SHARED]
        ours = pool.run(our_gradients, ranks, configs, chunked, timeout_s=120)
        torchs = pool.run(torch_gradients, ranks, SHARED, ranks, chunked, timeout_s=120)
        return [whole_model(ours), whole_model(torchs)]

    return lambda entry, ranks: [found[SHARED.index(entry)] for found in all_of(ranks)]


def whole_model(of_ranks):
    """For each entry the largest loss (torch has it on one rank only) and every parameter's gradient."""
    return [
        (max(loss for loss, _ in ranks), {name: g for _, named in ranks for name, g in named.items()})
        for ranks in zip(*of_ranks, strict=True)
    ]


@pytest.mark.parametrize(("entry", "ranks"), LIVE, ids=str)
def test_same_gradients_live(live, entry, ranks):
    ours, torchs = live(entry, ranks)
    name, _, _, options = entry
    (serial,) = serial_steps(live_config(name, ranks, options), equal_clusters(LIVE_COUNTS[ranks]), 1)
    for loss, gradients in (ours, torchs):
        assert gradients.keys() == serial.gradients.keys()
        assert abs(loss - serial.loss) <= TOLERANCE * serial.loss
        assert differences(gradients, serial.gradients) <= TOLERANCE
    assert differences(ours[1], torchs[1]) <= TOLERANCE
