import pytest

from gnnpar.schedule import Costs, check, fill_drain, simulate
from gnnpar.schedule.draw import grid


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("batches", [1, 4, 11])
def test_closed_forms(stages, batches):
    schedule = fill_drain(stages, batches)
    check(schedule, batch="chunk", neighbours="history", gradient="accumulate")
    result = simulate(schedule, Costs(F=2, B=3))
    assert result.makespan == (batches + stages - 1) * 5
    assert result.idle == ((stages - 1) * 5,) * stages
    assert result.bubble == pytest.approx((stages - 1) / (batches + stages - 1))
    assert result.peak_in_flight == (batches,) * stages
    assert result.messages == 2 * (stages - 1) * batches


def test_recomputation_costs_one_more_forward():
    assert simulate(fill_drain(2, 4), Costs(F=1, B=2, recompute=True)).makespan == 5 * 4


def test_docstring_shows_the_timetable():
    drawn = grid(simulate(fill_drain(3, 4), Costs(B=1)).timeline)
    shown = [line.strip() for line in fill_drain.__doc__.splitlines() if line.strip().startswith("rank")]
    assert drawn.splitlines() == shown
