"""One rank with several stages hands payloads over locally, and gives what one stage gives."""

import copy

import pytest
import torch
from runtime.cases import chunked_graph, make_config

from gnnpar.batch import chunk_order
from gnnpar.config.schema import MemoryConfig
from gnnpar.dist import Context, Transport
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.runtime import Executor, build_stage, needs_two_copies
from gnnpar.schedule import Action, Kind, Schedule, fill_drain, lower
from gnnpar.trace import Recorder
from gnnpar.train.job import make_model

CPU = torch.device("cpu")
STEPS = 5


def on_one_rank(num_stages, num_micro_batches):
    """Fill-drain with every stage on rank 0."""
    forward = [Action(Kind.F, s, (m,)) for m in range(num_micro_batches) for s in range(num_stages)]
    backward = [Action(Kind.B, action.stage, action.micro_batches) for action in reversed(forward)]
    steps = [Action(Kind.STEP, s) for s in range(num_stages)]
    placement = ((0,) * num_stages,)
    return Schedule("local", num_stages, num_micro_batches, ([*forward, *backward, *steps],), placement)


class Run:
    """Some stages on one rank, their steps without an optimizer."""

    def __init__(self, split, config, **graph):
        self.chunked = chunked_graph(config.batch.num_chunks, **graph)
        self.config = config
        self.model = make_model(config, self.chunked.graph).double()
        policy = HistoryPolicy.of(config)
        copies = 2 if needs_two_copies(self.model, policy, config.memory.recompute) else 1
        self.planner = ReadsPlanner(self.chunked, policy, copies)
        ends = [sum(split[: i + 1]) for i in range(len(split))]
        assert ends[-1] == len(self.model.all_layers())
        stages = {
            (0, i): build_stage(self.model, self.chunked, range(end - split[i], end), copies, config, CPU)
            for i, end in enumerate(ends)
        }
        self.recorder = Recorder(keep_events=True)
        transport = Transport(Context.single(), self.recorder)
        self.executor = Executor(0, stages, transport, self.recorder, CPU)
        self.step = 0

    def run_step(self):
        order = chunk_order(self.chunked.num_chunks, 0, self.step)
        reads = self.planner.plan(self.step, order)
        num_stages = len(self.executor.stages)
        schedule = lower(on_one_rank(num_stages, len(reads.slots)))
        self.model.zero_grad()
        loss = self.executor.run(schedule, reads, self.step)
        self.step += 1
        return loss.item(), {name: p.grad.clone() for name, p in self.model.named_parameters()}


@pytest.mark.parametrize("layer", ["gcnii", "resgcn", "gat"])
@pytest.mark.parametrize("split", [(2, 3), (2, 1, 2), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("recompute", [False, True])
def test_several_stages_on_a_rank_are_as_one(layer, split, recompute):
    config = make_config(
        {"name": layer, "heads": 2, "norm": "layer"},
        history={"mode": "latest", "gamma": 2.0},
        memory=MemoryConfig(recompute=recompute),
    )
    several, one = Run(split, config), Run((5,), config)
    for _ in range(STEPS):
        (loss, found), (wanted_loss, wanted) = several.run_step(), one.run_step()
        assert loss == pytest.approx(wanted_loss, rel=1e-13)
        largest = max(float(g.abs().max()) for g in wanted.values())
        for name, g in wanted.items():
            torch.testing.assert_close(found[name], g, rtol=0, atol=1e-12 * largest, msg=name)
    assert several.recorder.bytes_by_kind() == {}


def test_every_action_leaves_a_span():
    run = Run((2, 3), make_config())
    run.run_step()
    run.recorder.reset()
    run.run_step()
    done = [event.what for event in run.recorder.events]
    assert done == [str(action) for action in lower(on_one_rank(2, 4)).ranks[0]]
    assert run.recorder.seconds["F"] > 0 and run.recorder.seconds["B"] > 0


def test_a_rank_without_the_last_stage_has_no_loss():
    run = Run((2, 3), make_config(chunks=1))
    reads = run.planner.plan(0, (0,))
    forward_only = Schedule("half", 2, 1, ([Action(Kind.F, 0, (0,))], [Action(Kind.F, 1, (0,))]))
    assert run.executor.run(forward_only, reads, 0) is None


def test_buffers_are_sized_by_chunk_and_spec():
    run = Run((2, 3), make_config())
    stage = run.executor.stages[0, 1]
    chunk = run.chunked.chunks[2]
    payload = run.executor.empty_payload(chunk, stage.receives)
    assert [tuple(t.shape) for t in payload] == [(chunk.num_rows, *spec.tail) for spec in stage.receives]
    assert [spec.name for spec in stage.receives] == ["h", "h0"]
    assert {t.dtype for t in payload} == {torch.float64}


def test_messages_of_a_step_have_tags_of_their_own():
    """Between neighbours on two ranks, in an exact slot of all chunks and in slots of one."""
    run = Run((5,), make_config())
    sent = []

    class Noting:
        matches_by_tag = True

        def send(self, tensors, peer, tag, kind, what):
            sent.extend((peer, tag + i) for i in range(len(tensors)))

        def receive(self, buffers, peer, tag, what):
            return buffers

        def finish(self, message):
            return message

    config = make_config({"jumping_knowledge": "sum"})
    chunked = chunked_graph(4)
    model = make_model(config, chunked.graph).double()
    for step, num_slots in ((0, 1), (1, 4)):
        stage = build_stage(copy.deepcopy(model), chunked, range(2), 1, config, CPU)
        assert len(stage.sends) == 3  # h, h0 and the running sum
        executor = Executor(0, {(0, 0): stage}, Noting(), Recorder(), CPU)
        stage.backward = lambda slot, *_: {chunk: [] for chunk in slot}
        reads = run.planner.plan(step, (2, 0, 3, 1))
        assert len(reads.slots) == num_slots
        sent.clear()
        executor.run(lower(fill_drain(2, num_slots)), reads, step)
        assert len(sent) == len(set(sent)) == 4 * len(stage.sends)
