"""Gradients of one stage summed over the replicas that hold it, on one rank and over several."""

from types import SimpleNamespace

import torch
from torch import nn

from gnnpar.dist import Context, Mesh, Transport
from gnnpar.runtime.reduce import Reduction
from gnnpar.schedule import Action, Kind, Schedule
from gnnpar.trace import Recorder

SHAPES = ((2, 3), (4,), ())
SIZE = 8 * sum(torch.zeros(shape).numel() for shape in SHAPES)
LARGE = 2.0**53
"""Adding 1 to it changes nothing: sums depend on their order."""


def stages_of(held, way=0):
    """(replica, stage) → a stage of parameters whose gradients are told apart."""
    return {
        (replica, stage): SimpleNamespace(parameters=parameters(replica, stage, way).copy, batch_norms=list)
        for replica, stage in held
    }


def parameters(replica, stage, way=0):
    made = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    for number, p in enumerate(made[:-1]):
        draw = torch.Generator().manual_seed(1000 * way + 100 * stage + 10 * replica + number)
        p.grad = torch.randn(p.shape, generator=draw, dtype=torch.float64)
        p.grad.view(-1)[0] = [LARGE, 1.0, -LARGE, 1.0][(replica + way) % 4]
    return made  # the last has no gradient


def wanted(holders, stage):
    """The sums over all (replica, way), one a parameter; None where nobody has a gradient."""
    columns = zip(*(parameters(replica, stage, way) for replica, way in holders), strict=True)
    found = [[p.grad for p in ps if p.grad is not None] for ps in columns]
    return [sum(grads) if grads else None for grads in found]


def reduce_all(context, placement, num_ranks, ways=None):
    """All reductions of this rank, as the executor does them; the gradients that come out, and bytes sent."""
    num_stages = len(placement[0])
    schedule = Schedule("replicas", num_stages, 1, tuple(() for _ in range(num_ranks)), placement)
    mesh = Mesh(ways or (1,) * num_ranks, 12)
    column, way = mesh.place_of(context.rank)
    held = schedule.stages_on(column)
    stages = stages_of(held, way)
    recorder = Recorder()
    transport = Transport(context, recorder)
    started = []
    for replica, stage in held:
        action = Action(Kind.REDUCE, stage, (), replica)
        started.append(Reduction.start(action, schedule, mesh, stages, transport))
    for one in started:
        one.finish(started)
    found = {key: [p.grad for p in stages[key].parameters()] for key in held}
    return found, recorder.bytes_by_kind()


def check(ranks, replicas, num_stages):
    close(ranks, [[(replica, 0) for replica in range(replicas)]] * num_stages)
    found = {key: gradients for rank, _ in ranks for key, gradients in rank.items()}
    assert len(found) == replicas * num_stages


def same(a, b):
    return a is b is None or torch.equal(a, b)


def close(ranks, holders_of):
    """All copies of a stage hold the same bits, which are the sum over its (replica, way)s."""
    for stage, holders in enumerate(holders_of):
        first, *others = (held for rank, _ in ranks for (_, number), held in rank.items() if number == stage)
        assert len(others) == len(holders) - 1
        for other in others:
            assert all(same(a, b) for a, b in zip(other, first, strict=True))
        for gradient, total in zip(first, wanted(holders, stage), strict=True):
            if total is None:
                assert gradient is None
                continue
            assert gradient.shape == total.shape
            torch.testing.assert_close(gradient, total, rtol=0, atol=4.0)  # the large ones cancel to rounding
            torch.testing.assert_close(gradient.view(-1)[1:], total.view(-1)[1:], rtol=1e-14, atol=1e-14)


def test_replicas_on_one_rank_need_no_message():
    ranks = [reduce_all(Context.single(), ((0, 0), (0, 0)), 1)]
    check(ranks, 2, 2)
    assert ranks[0][1] == {}


def test_two_ranks_hold_the_same_bits(pool):
    """Bidirectional: each rank holds another stage of each replica."""
    ranks = pool.run(reduce_all, 2, ((0, 1), (1, 0)), 2)
    check(ranks, 2, 2)
    assert [sent for _, sent in ranks] == [{"weight": 2 * SIZE, "control": 2 * len(SHAPES)}] * 2


def test_a_rank_may_hold_some_of_the_replicas(pool):
    """Three replicas whose sum depends on its order, two of them on rank 0."""
    ranks = pool.run(reduce_all, 2, ((0,), (1,), (0,)), 2)
    check(ranks, 3, 1)


def test_ways_hold_the_same_bits(pool):
    """Three ways of one stage, whose sum depends on its order."""
    ranks = pool.run(reduce_all, 3, ((0,),), 1, (3,))
    close(ranks, [[(0, 0), (0, 1), (0, 2)]])
    assert [sent for _, sent in ranks] == [{"weight": 2 * SIZE, "control": 2 * len(SHAPES)}] * 3


def test_replicas_of_different_numbers_of_ways_hold_the_same_bits(pool):
    """Bidirectional, two ways and one: three copies of each stage."""
    ranks = pool.run(reduce_all, 3, ((0, 1), (1, 0)), 2, (2, 1))
    close(ranks, [[(0, 0), (0, 1), (1, 0)], [(0, 0), (1, 0), (1, 1)]])


def test_what_a_replica_adds_is_what_it_had_when_the_reduction_began():
    schedule = Schedule("replicas", 1, 1, ((),), ((0,), (0,)))
    stages = stages_of(schedule.stages_on(0))
    transport = Transport(Context.single(), Recorder())
    started = [
        Reduction.start(Action(Kind.REDUCE, 0, (), replica), schedule, Mesh((1,), 1), stages, transport)
        for replica in range(2)
    ]
    started[0].finish(started)  # writes replica 0's gradients, which replica 1 must not read
    started[1].finish(started)
    grads = [[p.grad for p in stages[replica, 0].parameters()] for replica in range(2)]
    assert all(same(a, b) for a, b in zip(*grads, strict=True))
    torch.testing.assert_close(
        grads[0][0].view(-1)[1:], wanted([(0, 0), (1, 0)], 0)[0].view(-1)[1:], rtol=1e-14, atol=1e-14
    )


def test_a_gradient_that_only_one_holder_has_counts_for_all():
    schedule = Schedule("replicas", 1, 1, ((),), ((0,), (0,)))
    stages = stages_of(schedule.stages_on(0))
    stages[1, 0].parameters()[-1].grad = torch.tensor(3.0, dtype=torch.float64)
    frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    for stage in stages.values():
        stage.parameters = [*stage.parameters(), frozen].copy
    transport = Transport(Context.single(), Recorder())
    started = [
        Reduction.start(Action(Kind.REDUCE, 0, (), replica), schedule, Mesh((1,), 1), stages, transport)
        for replica in range(2)
    ]
    for one in started:
        one.finish(started)
    assert [stages[replica, 0].parameters()[2].grad.item() for replica in range(2)] == [3.0, 3.0]
    assert frozen.grad is None
