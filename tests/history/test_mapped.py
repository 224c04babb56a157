"""Histories in files: the same rows, reopened as they were, refused where they are of something else."""

import gc
import json

import pytest
import torch
from runtime.cases import chunked_graph

from gnnpar.errors import InputError
from gnnpar.history import CutStore, MappedRows, foreign_histories

GRAPH = chunked_graph(4).graph


def store(path, graph=GRAPH, layer=3):
    return CutStore(graph.num_nodes, 1, MappedRows(path, graph, layer))


def test_rows_are_those_of_memory_before_and_after_their_release(tmp_path):
    x = torch.randn(GRAPH.num_nodes, 2, 3).double()
    disk, memory = store(tmp_path / "rank0.rows"), CutStore(GRAPH.num_nodes, 1)
    for one in (disk, memory):
        one.write(0, x, 0)
        one.release()
        one.write(1, 2 * x[:2], 0)
    assert torch.equal(disk.buffer, memory.buffer) and disk.new_copy().shape == memory.new_copy().shape
    assert (tmp_path / "rank0.rows").stat().st_size == disk.buffer.nbytes


def test_a_file_is_reopened_as_it_was(tmp_path):
    x = torch.randn(GRAPH.num_nodes, 4)
    first = store(tmp_path / "rank0.rows")
    first.write(0, x, 0)
    with pytest.raises(InputError, match="is in use by a run that has not ended"):
        store(tmp_path / "rank0.rows").allocate(x)
    first.mapped.close()
    again = store(tmp_path / "rank0.rows")
    again.allocate(x[:0])
    assert torch.equal(again.buffer, x)


def test_a_file_is_free_again_when_its_rows_are_dropped(tmp_path):
    """A trainer that is let go does not say so."""
    first = store(tmp_path / "rank0.rows")
    first.write(0, torch.ones(GRAPH.num_nodes, 4), 0)
    del first
    gc.collect()
    again = store(tmp_path / "rank0.rows")
    again.allocate(torch.zeros(0, 4))
    assert torch.equal(again.buffer, torch.ones(GRAPH.num_nodes, 4))


@pytest.mark.parametrize("header", [b"", b'{"graph": ', b"[]"])
def test_a_header_that_was_not_finished_is_no_traceback(tmp_path, header):
    (tmp_path / "rank0.json").write_bytes(header)
    if header:
        assert len(foreign_histories(tmp_path, GRAPH)) == 1
        with pytest.raises(InputError, match="holds other histories"):
            store(tmp_path / "rank0.rows").allocate(torch.zeros(0, 4))
    else:
        assert foreign_histories(tmp_path, GRAPH) == []
        store(tmp_path / "rank0.rows").allocate(torch.zeros(0, 4))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"layer": 4}, "layer 3, not 4"),
        ({"graph": chunked_graph(4, directed=False).graph}, f"graph {GRAPH.fingerprint}, not "),
        ({"width": 5}, "width 4, not 5"),
        ({"dtype": torch.float64}, "dtype float32, not float64"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, other, told):
    first = store(tmp_path / "rank0.rows")
    first.write(0, torch.zeros(GRAPH.num_nodes, 4), 0)
    first.mapped.close()
    width, dtype = other.pop("width", 4), other.pop("dtype", torch.float32)
    with pytest.raises(InputError) as refused:
        store(tmp_path / "rank0.rows", **other).allocate(torch.zeros(0, width, dtype=dtype))
    (fault,) = refused.value.faults
    assert told in fault and "history.dir" in fault and "choose another folder" in fault


def test_a_folder_is_searched_for_histories_of_another_graph(tmp_path):
    assert foreign_histories(tmp_path / "none", GRAPH) == []
    store(tmp_path / "rank0.rows").allocate(torch.zeros(0, 4))
    assert foreign_histories(tmp_path, GRAPH) == []
    (fault,) = foreign_histories(tmp_path, chunked_graph(3).graph)
    assert "history.dir" in fault and "rank0.json" in fault
    assert json.loads((tmp_path / "rank0.json").read_text())["width"] == 4
