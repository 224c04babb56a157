"""Two streams of chunks on one process: histories go from one replica's copy to the other's, and gradients
add up in the chunks of their own stream."""

import copy

import pytest
import torch
from oracle.dense_reference import DenseReference
from oracle.models import build, history
from runtime.cases import make_config
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import MemoryConfig
from gnnpar.dist import Context, Mesh, Transport
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.runtime import Executor, HistoryExchange, build_stage, needs_two_copies
from gnnpar.schedule import Action, Kind, Schedule, owners, whole
from gnnpar.trace import Recorder

CPU = torch.device("cpu")
ORDERS = [(0, 1, 2, 3), (2, 0, 3, 1), (3, 1, 0, 2), (1, 2, 3, 0), (2, 3, 1, 0)]
STREAMS = (0, 1, 1, 0)


def two_ways_round():
    """Fill-drain of two streams, both on rank 0: an order in which gradients may be accumulated."""
    forward = [Action(Kind.F, 0, (m,), replica) for m, replica in enumerate(STREAMS)]
    backward = [Action(Kind.B, 0, a.micro_batches, a.replica) for a in reversed(forward)]
    ends = [Action(kind, 0, (), replica) for kind in (Kind.REDUCE, Kind.STEP) for replica in (0, 1)]
    return Schedule("both ways", 1, 4, ([*forward, *backward, *ends],), ((0,), (0,)))


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("mode", ["latest", "snapshot", "drop"])
@pytest.mark.parametrize(
    ("name", "recompute"), [("gcnii", False), ("gat", False), ("gat", True), ("sage", True)]
)
def test_two_streams_of_one_process_are_the_dense_reference(name, recompute, mode, gamma):
    graph = tiny_graph()
    chunk_of = chunk_assignment(graph, 4)
    order = torch.argsort(chunk_of, stable=True)
    offsets = (0, *torch.bincount(chunk_of, minlength=4).cumsum(0).tolist())
    chunked = ChunkedGraph(graph.permute(order), offsets)
    keys = {"mode": mode, "gamma": gamma}
    config = make_config(history=keys, memory=MemoryConfig(recompute=recompute), seed=3)

    first = build(name, graph)
    models = [first, copy.deepcopy(first)]
    policy = HistoryPolicy.of(config)
    copies = 2 if needs_two_copies(first, policy, recompute) else 1
    schedule = two_ways_round()
    planner = ReadsPlanner(chunked, policy, copies, streams=tuple(owners(schedule)))
    count = len(first.all_layers())
    stages = {
        (replica, 0): build_stage(model, chunked, range(count), copies, config, CPU)
        for replica, model in enumerate(models)
    }
    recorder = Recorder()
    transport = Transport(Context.single(), recorder)
    histories = None
    if mode != "drop":
        histories = HistoryExchange(stages, first.cut_specs(graph), transport, CPU)
    executor = Executor(0, stages, transport, recorder, CPU, Mesh((1,), 4), histories)

    twin = copy.deepcopy(first)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.2) for model in models]
    reference = DenseReference(
        twin,
        graph,
        chunk_of,
        history(mode, gamma=gamma, period=config.history.period),
        torch.optim.SGD(twin.parameters(), lr=0.2),
        seed=3,
        streams=STREAMS,
    )
    for step, order in enumerate(ORDERS):
        reads = planner.plan(step, order)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = executor.run(whole(schedule) if reads.exact else schedule, reads, step)
        wanted = reference.step(list(order))
        assert loss.item() == pytest.approx(wanted.loss, rel=1e-10)
        assert (reads.age if reads.history_share else 0, reads.history_share) == (wanted.age, wanted.share)
        largest = max(float(g.abs().max()) for g in wanted.gradients.values())
        for model, optimizer in zip(models, optimizers, strict=True):
            for key, p in model.named_parameters():
                assert float((p.grad - wanted.gradients[key]).abs().max()) <= 1e-10 * largest, (step, key)
            optimizer.step()
    assert recorder.bytes_by_kind() == {}
