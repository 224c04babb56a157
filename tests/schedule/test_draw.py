import json
from xml.etree import ElementTree

import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import Costs, Timed, fill_drain, parse_item, simulate
from gnnpar.schedule.draw import chrome, grid, measured, svg


def test_grid_of_a_plan():
    drawn = grid(simulate(fill_drain(2, 2), Costs(F=1, B=2)).timeline)
    assert drawn.splitlines() == [
        "rank 0  F0 F1 .  .  .  B1 -  B0 -",
        "rank 1  .  F0 F1 B1 -  B0 -  .  .",
    ]


def test_grid_of_a_measurement_takes_the_same_writer():
    recorded = [[("0F0", 7.1, 8.05)], [("1B0", 8.1, 10.0)]]
    assert measured(recorded)[0] == Timed(0, 0, 8.05 - 7.1, parse_item("0F0"))
    assert grid(measured(recorded), slot=1.0).splitlines() == ["rank 0  F0 .  .", "rank 1  .  B0 -"]
    with pytest.raises(InputError, match="halo"):
        measured([[("halo", 0.0, 1.0)]])
    assert grid([]) == ""


def test_a_long_grid_goes_on_below():
    drawn = grid(simulate(fill_drain(2, 9), Costs(B=1)).timeline, wrap=40)
    first, second = drawn.split("\n\n")
    assert max(map(len, drawn.splitlines())) <= 40
    assert first.startswith("rank 0  F0 F1") and second.startswith("rank 0  B8")


def test_svg_is_xml_with_a_box_an_action():
    image = ElementTree.fromstring(svg(simulate(fill_drain(2, 3)).timeline, title="a < b"))
    titles = [node.text for node in image.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 12 and "0F0: 0 – 1" in titles


def test_chrome_trace_holds_every_action():
    result = simulate(fill_drain(2, 2))
    trace = json.loads(chrome(result.timeline, unit_us=1000))
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(complete) == sum(map(len, result.schedule.ranks))
    last = max(event["ts"] + event["dur"] for event in complete)
    assert last == result.makespan * 1000
    assert {event["tid"] for event in complete} == {0, 1}
