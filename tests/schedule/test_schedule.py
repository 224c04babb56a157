import ast
from itertools import pairwise
from pathlib import Path

import pytest

from gnnpar.errors import InputError
from gnnpar.schedule import Schedule, fill_drain, kernel, lower
from gnnpar.schedule.action import Kind


def test_text_and_json_round_trip():
    for schedule in (fill_drain(3, 2), lower(fill_drain(3, 2))):
        assert Schedule.from_text(schedule.to_text()) == schedule
        assert Schedule.from_json(schedule.to_json()) == schedule


def test_graph_of_stages_and_placement_survive_the_text():
    text = fill_drain(1, 1).to_text()
    text = text.replace("stages: 1", "stages: 3").replace(
        "placement@0: 0", "placement@0: 0 0 0\nedges: 0>2 1>2"
    )
    read = Schedule.from_text(text)
    assert read.edges == ((0, 2), (1, 2))
    assert read.predecessors(2) == (0, 1) and read.successors(0) == (2,)
    assert read.stages_on(0) == ((0, 0), (0, 1), (0, 2))
    assert Schedule.from_text(read.to_text()) == read


def test_wrong_counts_are_all_named():
    with pytest.raises(InputError) as caught:
        Schedule("x", 2, 0, ((),), placement=((0, 3), (0,)), edges=((1, 0),))
    text = str(caught.value)
    for word in ("micro_batches", "stage 1 is on rank 3", "replica 1", "1 → 0"):
        assert word in text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "first line"),
        ("gnnpar schedule 1\nname: x\n", "stages"),
        ("gnnpar schedule 1\nname\n", "key: value"),
        ("gnnpar schedule 1\nname: x\nstages: two\nmicro_batches: 1\nlowered: false\n", "number"),
    ],
)
def test_unreadable_text_says_what_is_wrong(text, word):
    with pytest.raises(InputError, match=word):
        Schedule.from_text(text)


def test_nothing_here_imports_torch_or_numpy_when_it_is_imported():
    for path in Path(kernel.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = (
                [alias.name for alias in getattr(node, "names", ())] if isinstance(node, ast.Import) else []
            )
            module = getattr(node, "module", None) or ""
            for name in (*names, module):
                assert name.split(".")[0] not in ("torch", "numpy", "numba"), path


def test_compiled_loop_knows_the_same_kinds():
    assert all(getattr(kernel, kind.name) == kind for kind in Kind)
    assert all(b - a == 1 for a, b in pairwise(Kind))
