"""The best epoch and when to stop."""

import math

from gnnpar.train.early_stop import EarlyStop


def test_best_epoch_is_the_first_of_the_best():
    stop = EarlyStop()
    assert [stop.update(e, s) for e, s in enumerate([0.1, 0.3, 0.2, 0.3, 0.4], start=1)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert stop.best == 0.4 and stop.best_epoch == 5
    assert not stop.should_stop(10_000)


def test_stops_after_patience_epochs():
    stop = EarlyStop(patience=4)
    stop.update(2, 0.5)
    stop.update(4, 0.4)
    assert not stop.should_stop(4)
    stop.update(6, 0.5)
    assert stop.should_stop(6)
    stop.update(8, 0.6)
    assert not stop.should_stop(8)


def test_only_an_evaluation_stops():
    stop = EarlyStop(patience=3)
    stop.update(5, 0.5)
    assert not any(stop.should_stop(epoch) for epoch in range(5, 10))
    stop.update(10, 0.4)
    assert stop.should_stop(10)


def test_nothing_stops_before_the_first_score():
    assert not EarlyStop(patience=1).should_stop(50)


def test_without_validation_the_latest_epoch_is_the_best():
    stop = EarlyStop(patience=3)
    assert stop.update(5, math.nan) and stop.update(10, math.nan)
    assert stop.best_epoch == 10 and math.isnan(stop.best)
    assert stop.update(15, 0.2) and not stop.update(20, math.nan)
    assert stop.best_epoch == 15
