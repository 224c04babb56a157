"""Ages, snapshots and warm-up against a simulation that writes down what happens."""

import pytest

from gnnpar.config.schema import BatchConfig, HistoryConfig, RunConfig
from gnnpar.history import HistoryPolicy

CASES = [(w, p) for w in (1, 2, 3, 7) for p in (1, 2, 3, 20)]


@pytest.mark.parametrize(("warmup", "period"), CASES)
def test_snapshots_and_ages_are_those_of_a_simulation(warmup, period):
    policy = HistoryPolicy("snapshot", period, 1.0, warmup)
    taken = []
    next_close = warmup - 1
    for step in range(warmup + 3 * period + 2):
        assert policy.num_snapshots_before(step) == len(taken)
        if step < warmup:
            assert policy.is_exact(step) and policy.age(step) == 0
        else:
            assert not policy.is_exact(step)
            assert policy.age(step) == step - taken[-1]
        assert policy.closes(step) == (step == next_close)
        if step == next_close:
            taken.append(step)
            next_close += period


@pytest.mark.parametrize(("mode", "age"), [("latest", 1), ("drop", 0)])
def test_other_modes_take_no_snapshots_and_their_age_is_constant(mode, age):
    policy = HistoryPolicy(mode, 2, 1.0, 3)
    assert not any(policy.closes(step) for step in range(20))
    assert [policy.age(step) for step in range(6)] == [0, 0, 0, age, age, age]


def test_it_takes_its_values_from_the_config():
    history = HistoryConfig(mode="snapshot", period=7, gamma=0.5, warmup_steps=2)
    assert HistoryPolicy.of(RunConfig(history=history)) == HistoryPolicy("snapshot", 7, 0.5, 2)


def test_clusters_have_no_history_and_no_warm_up():
    history = HistoryConfig(mode="snapshot", period=7, gamma=0.5, warmup_steps=2)
    policy = HistoryPolicy.of(RunConfig(batch=BatchConfig(num_chunks=4, kind="clusters"), history=history))
    assert policy.mode == "drop" and policy.gamma == 0.0
    assert not any(policy.is_exact(step) or policy.age(step) or policy.closes(step) for step in range(20))


@pytest.mark.parametrize("warmup", [1, 3])
def test_rows_are_kept_where_a_later_step_reads_them_as_history(warmup):
    """A step reads rows that are `age` steps old: those steps, and no others, are kept."""
    for mode, period in (("latest", 1), ("snapshot", 2), ("snapshot", 3), ("drop", 1)):
        policy = HistoryPolicy(mode, period, 1.0, warmup)
        read = {step - policy.age(step) for step in range(20 + period) if policy.age(step)}
        assert [step for step in range(20) if policy.keeps(step)] == sorted(s for s in read if s < 20)
