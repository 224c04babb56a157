"""Partitions on disk: the cache finds the same request and no other; a file of another graph is refused."""

import numpy as np
import pytest
import torch

from gnnpar.errors import InputError
from gnnpar.partition import build, load_partition, partition_graph, save_partition
from tests.partition.graphs import from_edges, planted


@pytest.fixture
def counted(monkeypatch):
    """Counts how often a graph is really cut."""
    calls = []
    cut = build._cut
    monkeypatch.setattr(build, "_cut", lambda *args: calls.append(1) or cut(*args))
    return calls


def test_cache_hit(tmp_path, counted):
    graph = planted()
    first = partition_graph(graph, 4, method="ldg", cache_dir=tmp_path)
    second = partition_graph(graph, 4, method="ldg", cache_dir=tmp_path)
    assert len(counted) == 1
    assert second.key == first.key and torch.equal(second.order, first.order)
    assert torch.equal(second.offsets, first.offsets) and second.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"num_parts": 5},
        {"method": "fennel"},
        {"inner_order": "none"},
        {"vertex_cost": np.arange(1.0, 241.0)},
        {"graph": planted(seed=1)},
    ],
)
def test_any_change_of_the_request_misses_the_cache(tmp_path, counted, change):
    request = {"graph": planted(), "num_parts": 4, "method": "ldg", "cache_dir": tmp_path}
    one = partition_graph(**request)
    other = partition_graph(**(request | change))
    assert len(counted) == 2
    assert one.key.fingerprint != other.key.fingerprint and one.fingerprint != other.fingerprint


def test_features_and_masks_do_not_matter(tmp_path, counted):
    graph = planted()
    partition_graph(graph, 4, method="ldg", cache_dir=tmp_path)
    partition_graph(graph.replace(train_mask=~graph.train_mask), 4, method="ldg", cache_dir=tmp_path)
    assert len(counted) == 1


def test_a_damaged_cache_is_replaced(tmp_path, counted):
    graph = planted()
    partition_graph(graph, 4, method="ldg", cache_dir=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    partition_graph(graph, 4, method="ldg", cache_dir=tmp_path)
    assert len(counted) == 2 and file.read_bytes() == whole


def test_save_and_load(tmp_path):
    graph = planted()
    partition = partition_graph(graph, 4)
    file = tmp_path / "folder" / "parts"
    save_partition(partition, file)
    loaded = load_partition(file, graph)
    assert loaded.fingerprint == partition.fingerprint and torch.equal(
        loaded.assignment, partition.assignment
    )
    assert [entry.name for entry in file.parent.iterdir()] == ["parts"]


def test_a_partition_of_another_graph_names_both(tmp_path):
    graph, other = planted(), planted(seed=1)
    save_partition(partition_graph(graph, 4, method="range"), tmp_path / "parts.npz")
    with pytest.raises(InputError) as error:
        load_partition(tmp_path / "parts.npz", other)
    assert graph.fingerprint in str(error.value) and other.fingerprint in str(error.value)


def test_files_that_are_no_partition(tmp_path):
    graph = from_edges(4, [0, 1], [1, 2])
    with pytest.raises(InputError, match="no such file"):
        load_partition(tmp_path / "absent.npz", graph)
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "other.npz", order=np.arange(4))
    np.save(tmp_path / "array.npy", np.arange(4))
    for name in ("text", "other.npz", "array.npy"):
        with pytest.raises(InputError, match="not a partition, or damaged"):
            load_partition(tmp_path / name, graph)


def test_a_changed_array_fails_the_checksum(tmp_path):
    graph = from_edges(4, [0, 1], [1, 2])
    save_partition(partition_graph(graph, 2, method="range"), tmp_path / "parts.npz")
    with np.load(tmp_path / "parts.npz") as file:
        arrays = dict(file)
    arrays["order"] = arrays["order"][::-1]
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(InputError, match="checksum"):
        load_partition(tmp_path / "changed.npz", graph)


def test_a_writer_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    graph = from_edges(4, [0, 1], [1, 2])
    partition = partition_graph(graph, 2, method="range")
    save_partition(partition, tmp_path / "parts.npz")
    before = (tmp_path / "parts.npz").read_bytes()

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        save_partition(partition, tmp_path / "parts.npz")
    assert [file.name for file in tmp_path.iterdir()] == ["parts.npz"]
    assert (tmp_path / "parts.npz").read_bytes() == before
