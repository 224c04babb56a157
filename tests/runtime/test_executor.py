"""One rank with several stages hands payloads over locally, and gives what one stage gives."""

import copy

import pytest
import torch
from runtime.cases import chunked_graph, make_config
from torch import nn

from gnnpar.batch import chunk_order
from gnnpar.config.schema import MemoryConfig
from gnnpar.dist import Context, Transport
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.model import GAT, GCN, GCNII, Branch, Encoder, LayerGraph
from gnnpar.runtime import Executor, build_stage, needs_two_copies
from gnnpar.schedule import Action, Kind, Schedule, fill_drain, lower
from gnnpar.trace import Recorder
from gnnpar.train.job import make_model

CPU = torch.device("cpu")
STEPS = 5


def on_one_rank(num_stages, num_micro_batches, edges=None):
    """Fill-drain with every stage on rank 0."""
    forward = [Action(Kind.F, s, (m,)) for m in range(num_micro_batches) for s in range(num_stages)]
    backward = [Action(Kind.B, action.stage, action.micro_batches) for action in reversed(forward)]
    steps = [Action(Kind.STEP, s) for s in range(num_stages)]
    placement = ((0,) * num_stages,)
    program = [*forward, *backward, *steps]
    return Schedule("local", num_stages, num_micro_batches, (program,), placement, edges)


class Actions(Recorder):
    """Keeps the actions of a step in the order of their ends."""

    def __init__(self):
        super().__init__()
        self.actions = []

    def add(self, kind, start, what="", **where):
        if kind in Kind.__members__:
            self.actions.append(what)
        return super().add(kind, start, what, **where)

    def reset(self):
        super().reset()
        self.actions = []


class Run:
    """Some stages on one rank, their steps without an optimizer."""

    def __init__(self, split, config, model=None, edges=None, **graph):
        self.chunked = chunked_graph(config.batch.num_chunks, **graph)
        self.config = config
        self.model = make_model(config, self.chunked.graph).double() if model is None else model
        self.edges = edges
        policy = HistoryPolicy.of(config)
        copies = 2 if needs_two_copies(self.model, policy, config.memory.recompute) else 1
        self.planner = ReadsPlanner(self.chunked, policy, copies)
        ends = [sum(split[: i + 1]) for i in range(len(split))]
        assert ends[-1] == len(self.model.all_layers())
        payloads = self.model.payloads(self.chunked.graph, split, edges)
        ranges = [range(end - split[i], end) for i, end in enumerate(ends)]
        stages = {
            (0, i): build_stage(self.model, self.chunked, ranges[i], copies, config, CPU, payloads, i)
            for i in range(len(ranges))
        }
        self.recorder = Actions()
        transport = Transport(Context.single(), self.recorder)
        self.executor = Executor(0, stages, transport, self.recorder, CPU)
        self.step = 0

    def run_step(self):
        order = chunk_order(self.chunked.num_chunks, 0, self.step)
        reads = self.planner.plan(self.step, order)
        num_stages = len(self.executor.stages)
        schedule = lower(on_one_rank(num_stages, len(reads.slots), self.edges))
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


def branching():
    """Carries that two stages read, one that passes a stage, and a stage of two branches."""
    torch.manual_seed(0)
    keys = {"dropout": 0.3}
    branches = {
        "a": Branch([GCNII(6, 1, **keys), GCN(6, 6, **keys)]),
        "b": Branch([GCNII(6, 2, **keys)], inputs="a"),
        "c": Branch([GAT(7, 3, heads=2, **keys)], inputs="features"),
        "d": Branch([GCNII(6, 3, **keys)], inputs=("a", "c"), join=Product()),
        "e": Branch([nn.Tanh()], inputs=("a", "b", "d"), join="cat"),
    }
    return LayerGraph(branches, encoder=Encoder(7, 6), decoder=nn.Linear(18, 3)).double()


class Product(nn.Module):
    def forward(self, a, c):
        return a * (1 + c)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mode", ["latest", "snapshot"])
def test_a_graph_of_stages_on_a_rank_is_as_one(recompute, mode):
    """Gradients of rows that several stages read add up; carries pass stages that do not read them."""
    config = make_config(
        {"name": "custom"}, history={"mode": mode, "gamma": 2.0}, memory=MemoryConfig(recompute=recompute)
    )
    model = branching()
    split = [units[-1].stop - units[0].start for units in model.branches_in_order().values()]
    edges = model.stage_edges(split)
    assert edges == ((0, 1), (0, 3), (0, 4), (1, 4), (2, 3), (3, 4))
    apart = Run(split, config, copy.deepcopy(model), edges)
    chained = Run(split, config, copy.deepcopy(model))
    one = Run((sum(split),), config, copy.deepcopy(model))
    for _ in range(STEPS):
        wanted_loss, wanted = one.run_step()
        largest = max(float(g.abs().max()) for g in wanted.values())
        for run in (apart, chained):
            loss, found = run.run_step()
            assert loss == pytest.approx(wanted_loss, rel=1e-13)
            for name, g in wanted.items():
                torch.testing.assert_close(found[name], g, rtol=0, atol=1e-12 * largest, msg=name)
    assert apart.recorder.bytes_by_kind() == {}


def test_every_action_leaves_a_span():
    run = Run((2, 3), make_config())
    run.run_step()
    run.recorder.reset()
    run.run_step()
    done = run.recorder.actions
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
    (specs,) = stage.receives.values()
    payload = run.executor.empty_payload(chunk.num_rows, specs)
    assert [tuple(t.shape) for t in payload] == [(chunk.num_rows, *spec.tail) for spec in specs]
    assert [spec.name for spec in specs] == ["h", "h0"]
    assert {t.dtype for t in payload} == {torch.float64}


class Noting:
    """A transport that only notes where what was sent to."""

    matches_by_tag = True

    def __init__(self):
        self.sent = []

    def send(self, tensors, peer, tag, kind, what):
        self.sent.extend((peer, tag + i) for i in range(len(tensors)))

    def receive(self, buffers, peer, tag, what):
        return buffers

    def finish(self, message):
        return message


def test_messages_to_two_stages_on_a_rank_have_tags_of_their_own():
    config, chunked, model = make_config(), chunked_graph(4), branching()
    split = [units[-1].stop - units[0].start for units in model.branches_in_order().values()]
    edges = model.stage_edges(split)
    payloads = model.payloads(chunked.graph, split, edges)
    stage = build_stage(model, chunked, range(split[0]), 1, config, CPU, payloads, 0)
    stage.backward = lambda *_: {}
    noting = Noting()
    executor = Executor(0, {(0, 0): stage}, noting, Recorder(), CPU)
    reads = Run((sum(split),), config, model).planner.plan(1, (2, 0, 3, 1))
    forward = on_one_rank(5, 4, edges)
    first = [action for action in forward.ranks[0] if action.stage == 0]
    rest = [action for action in forward.ranks[0] if action.stage > 0]
    schedule = Schedule("two ranks", 5, 4, (first, rest), ((0, 1, 1, 1, 1),), edges)
    executor.run(lower(schedule), reads, 1)
    tensors = sum(len(specs) for (source, _), specs in payloads.items() if source == 0)
    assert len(stage.sends) == 3 and tensors == 5
    assert len(noting.sent) == len(set(noting.sent)) == 4 * tensors


def test_messages_of_a_step_have_tags_of_their_own():
    """Between neighbours on two ranks, in an exact slot of all chunks and in slots of one."""
    run = Run((5,), make_config())
    noting = Noting()
    sent = noting.sent

    config = make_config({"jumping_knowledge": "sum"})
    chunked = chunked_graph(4)
    model = make_model(config, chunked.graph).double()
    for step, num_slots in ((0, 1), (1, 4)):
        payloads = model.payloads(chunked.graph, (2, len(model.all_layers()) - 2))
        stage = build_stage(copy.deepcopy(model), chunked, range(2), 1, config, CPU, payloads, 0)
        assert len(stage.sends[1]) == 3  # h, h0 and the running sum
        executor = Executor(0, {(0, 0): stage}, noting, Recorder(), CPU)
        stage.backward = lambda *_: {}
        reads = run.planner.plan(step, (2, 0, 3, 1))
        assert len(reads.slots) == num_slots
        sent.clear()
        executor.run(lower(fill_drain(2, num_slots)), reads, step)
        assert len(sent) == len(set(sent)) == 4 * len(stage.sends[1])
