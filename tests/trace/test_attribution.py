"""What waits are blamed on, where it is known: steps written by hand, and runs in which something sleeps."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.cases import chunked_graph, make_config
from support.live import clusters_of, config_of
from support.steps import Rank, epoch_of, pipeline, step_of

from gnnpar.config.schema import BatchConfig, ParallelConfig, TrainConfig
from gnnpar.schedule import Action, Costs, Kind, Schedule, lower, simulate
from gnnpar.trace import EventLog, Recorder, read_log
from gnnpar.trace.attribution import attribute, group_of
from gnnpar.trace.replay import Replay, free
from gnnpar.trace.timeline import epochs
from gnnpar.train.job import make_model
from gnnpar.train.trainer import Trainer

SLEEP = 0.05
MICRO_BATCHES = 4


def blame(step):
    """Seconds of every rank by category, without zeros."""
    ranks = [{1: epoch_of(rank, 1, ops)} for rank, ops in enumerate(step.ranks)]
    found = attribute(ranks)
    for rank, ops in zip(found, step.ranks, strict=True):
        assert rank.total == pytest.approx(ops[-1].end - ops[0].start)
    return [{k: pytest.approx(v) for k, v in rank.seconds.items() if v > 1e-9} for rank in found]


def test_equal_stages_wait_for_the_schedule_alone():
    assert blame(pipeline([1.0] * 4, [1.0] * 4)) == [{"row-wise forward": 4.0, "bubble": 1.0}] * 2


def test_a_slow_stage_is_imbalance_for_those_who_wait_for_it():
    fast, slow = blame(pipeline([1.0] * 4, [3.0] * 4))
    assert fast == {"row-wise forward": 4.0, "bubble": 1.0, "imbalance stage": 8.0}
    assert slow == {"row-wise forward": 12.0, "bubble": 1.0}


def test_a_large_chunk_is_imbalance_of_chunks():
    # On both stages: the others wait while it passes.
    sizes = [1.0, 4.0, 1.0, 2.0]
    first, second = blame(pipeline(sizes, sizes))
    assert first == {"row-wise forward": 8.0, "bubble": 2.0, "imbalance chunk": 2.0}
    assert second == {"row-wise forward": 8.0, "bubble": 2.0, "imbalance chunk": 2.0}


def test_a_slow_network_is_communication_for_all_who_wait():
    # Sent while the next one is computed: only the first message shows.
    first, second = blame(pipeline([1.0] * 4, [1.0] * 4, delay=0.5))
    assert first == {"row-wise forward": 4.0, "bubble": 1.0, "communication stage": 0.5}
    assert second == first


def test_collectives_wait_for_the_last_rank():
    a = Rank().work(1.0, "STEP").wait(4.0, -1, 0, "control")
    b = Rank(1.0).work(2.0, "STEP").wait(4.0, -1, 0, "control")
    assert blame(step_of(a, b)) == [
        {"optimizer": 1.0, "imbalance stage": 2.0, "communication control": 1.0},
        {"optimizer": 2.0, "communication control": 1.0},
    ]


def test_a_rank_waits_until_what_it_sent_is_received():
    a = Rank().send(1, 0).wait(2.0, 1, 0, sent=True)
    b = Rank().work(2.0, "STEP").post(0, 0).wait(2.0, 0, 0)
    first, second = blame(step_of(a, b))
    assert first == {"imbalance stage": 2.0} and second == {"optimizer": 2.0}


def test_a_replay_with_the_measured_durations_and_delays_is_the_measurement():
    step = pipeline([1.0, 2.0, 1.0], [1.5, 1.0, 2.0], delay=0.25)
    replay = Replay(step)
    result = replay.run(replay.measured, lambda key: replay.delays.get(key, 0.0))
    for ops, times in zip(step.ranks, result.times, strict=True):
        assert [end for _, end in times] == pytest.approx([op.end for op in ops])


def test_a_step_that_lacks_a_message_ends_all_the_same():
    a = Rank().wait(1.0, 1, 0).send(1, 1)
    b = Rank().wait(1.0, 0, 1).send(0, 0)
    step = step_of(a, b)  # each waits for what the other sends later: cannot have happened
    replay = Replay(step)
    assert replay.run(replay.measured, free).makespan == 0.0
    c = Rank().wait(1.0, 1, 7).work(1.0)
    assert Replay(step_of(c, Rank().work(0.5))).run(lambda *_: 1.0, free).makespan == 1.0


# In processes


class SlowWork:
    """A message that takes longer."""

    def __init__(self, work):
        self.work = work

    def wait(self, timeout):
        self.work.wait(timeout)
        time.sleep(SLEEP)


def sleeping(run, seconds):
    def run_slowly(*args, **keys):
        time.sleep(seconds)
        return run(*args, **keys)

    return run_slowly


def slow_rank(trainer):
    """The second rank's forward passes take longer."""
    if trainer.context.rank == 1:
        stage = trainer.executor.stages[0, 1]
        stage.forward = sleeping(stage.forward, SLEEP)


def slow_link(trainer):
    """What the second rank receives takes longer."""
    transport = trainer.executor.transport
    receive = transport.receive

    def receive_slowly(*args, **keys):
        message = receive(*args, **keys)
        return replace(message, works=[*message.works[:-1], SlowWork(message.works[-1])])

    if trainer.context.rank == 1:
        transport.receive = receive_slowly


def one_after_the_other():
    """A schedule that waits for the backward of each micro-batch before the next forward."""
    batches = [kind(batch) for batch in range(MICRO_BATCHES) for kind in (_forward, _backward)]
    return Schedule("serial", 2, MICRO_BATCHES, tuple([one(stage) for one in batches] for stage in range(2)))


def _forward(batch):
    return lambda stage: Action(Kind.F, stage, (batch,))


def _backward(batch):
    return lambda stage: Action(Kind.B, stage, (batch,))


def serial_schedule(trainer):
    """All stages sleep alike; the schedule keeps them waiting for each other."""
    for stage in trainer.executor.stages.values():
        stage.forward, stage.backward = sleeping(stage.forward, SLEEP), sleeping(stage.backward, SLEEP)
    trainer._lowered = lower(one_after_the_other()), trainer._lowered[1]


def traced(context, config, chunked, folder, disturb=None, num_epochs=4):
    """Trains with a log; of every epoch its least and its most wall seconds."""
    recorder = Recorder(EventLog(Path(folder, f"rank{context.rank}.events"), {"rank": context.rank}))
    trainer = Trainer(make_model(config, chunked.graph), chunked, config, context, recorder)
    if disturb is not None:
        disturb(trainer)
    seconds = []
    for epoch in range(1, num_epochs + 1):
        times = [time.perf_counter()]
        recorder.start_epoch(epoch)
        times.append(time.perf_counter())
        trainer.train_step()
        if epoch == num_epochs:
            trainer.evaluate()
        times.append(time.perf_counter())
        recorder.end_epoch()
        times.append(time.perf_counter())
        seconds.append((times[2] - times[1], times[3] - times[0]))
    recorder.close()
    return seconds


def breakdown(folder, wanted=None):
    return attribute([epochs(read_log(path), wanted) for path in sorted(Path(folder).glob("rank*.events"))])


@pytest.mark.parametrize(
    ("disturb", "category", "ranks", "injected"),
    [
        (slow_rank, "imbalance", [0], MICRO_BATCHES * SLEEP),
        (slow_link, "communication", [0, 1], MICRO_BATCHES * SLEEP),
        (serial_schedule, "bubble", [0, 1], None),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_is_injected_is_blamed(pool, tmp_path, disturb, category, ranks, injected):
    config = config_of("gpipe", 2, MICRO_BATCHES)
    pool.run(traced, 2, config, clusters_of(None, MICRO_BATCHES), str(tmp_path), disturb, timeout_s=60)
    if injected is None:
        costs = Costs(F=SLEEP, B=SLEEP)
        injected = simulate(lower(one_after_the_other()), costs).idle[0]
        assert injected == pytest.approx(2 * MICRO_BATCHES * SLEEP)
    # The machine may run something else meanwhile: the calmest of three steps counts.
    steps = [breakdown(tmp_path, [epoch]) for epoch in (2, 3, 4)]
    for rank in ranks:
        assert max(found[rank].group(category) for found in steps) >= 0.9 * injected, steps


SYSTEMS = {
    "full_batch": (1, {"parallel": ParallelConfig(stages=1), "chunks": 1}),
    "gnnpipe": (2, {"parallel": ParallelConfig(stages=2), "chunks": 4}),
    "one_f_one_b": (
        2,
        {"batch": BatchConfig(num_chunks=4, kind="clusters"), "parallel": ParallelConfig(stages=2)},
    ),
    "graph_parallel": (2, {"parallel": ParallelConfig(stages=1, ways=2), "chunks": 1}),
}
EXPECTED = {
    "full_batch": {"aggregation", "row-wise"},
    "gnnpipe": {"aggregation", "row-wise", "communication stage"},
    "one_f_one_b": {"aggregation", "row-wise", "communication stage"},
    "graph_parallel": {"aggregation", "row-wise", "communication halo", "communication weight"},
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_parts_of_an_epoch_add_up_to_it(pool, tmp_path, system):
    ranks, keys = SYSTEMS[system]
    config = make_config(train=TrainConfig(lr=0.1, num_epochs=4), **keys)
    chunked = chunked_graph(2 if system == "graph_parallel" else config.batch.num_chunks)
    seconds = pool.run(traced, ranks, config, chunked, str(tmp_path), timeout_s=60)
    for rank, found in enumerate(breakdown(tmp_path)):
        least, most = (sum(of_epochs) / 4 for of_epochs in zip(*seconds[rank], strict=True))
        assert found.rank == rank and least <= found.total <= most
        assert all(value >= 0 for value in found.seconds.values())
        present = {category for category, value in found.seconds.items() if value > 0}
        for wanted in EXPECTED[system]:
            assert any(category.startswith(wanted) for category in present), wanted
        assert {group_of(one) for one in present} >= {"optimizer", "input", "evaluation", "other"}
