"""A chunked graph written and mapped again is the same graph."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from runtime.cases import chunked_graph
from support.graphs import tiny_graph

from gnnpar.batch import ChunkedGraph, load_chunked, save_chunked
from gnnpar.graph import Graph, SparseRows


def same(one, other):
    if isinstance(one, SparseRows):
        return one.num_columns == other.num_columns and all(
            same(getattr(one, key), getattr(other, key)) for key in ("indptr", "indices", "values")
        )
    if isinstance(one, torch.Tensor):
        equal = one.dtype == other.dtype and one.shape == other.shape
        return equal and np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point())
    return one == other


GRAPHS = {
    "dense": lambda: tiny_graph(),
    "sparse": lambda: tiny_graph(sparse=True),
    "weighted": lambda: tiny_graph(weighted=True),
    "multi-label": lambda: tiny_graph(multi_label=True, dtype=torch.float32),
    "edge features": lambda: (g := tiny_graph()).replace(edge_attr=torch.rand(g.num_edges, 3)),
    "large": lambda: tiny_graph(num_nodes=500, num_features=20),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_round_trip(tmp_path, kind):
    chunked = chunked_graph(3, GRAPHS[kind]())
    save_chunked(chunked, tmp_path / "graph")
    found = load_chunked(tmp_path / "graph")
    assert found.offsets == chunked.offsets
    for field in fields(Graph):
        assert same(getattr(chunked.graph, field.name), getattr(found.graph, field.name)), field.name
    assert found.graph.fingerprint == chunked.graph.fingerprint


@pytest.mark.parametrize("x", ["dense", "sparse", None])
def test_empty_arrays_round_trip(tmp_path, x):
    n = 3
    nothing = SparseRows(
        torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), 4
    )
    features = {"dense": torch.empty(n, 0), "sparse": nothing, None: None}[x]
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=n, x=features)
    save_chunked(ChunkedGraph(graph, (0, 1, 3)), tmp_path / "graph")
    found = load_chunked(tmp_path / "graph")
    assert found.graph.num_edges == 0 and found.graph.num_nodes == n
    assert same(graph.x, found.graph.x)


def test_arrays_are_mapped_and_writing_to_them_stays_private(tmp_path):
    save_chunked(chunked_graph(3, GRAPHS["large"]()), tmp_path / "graph")
    found = load_chunked(tmp_path / "graph")
    maps = Path("/proc/self/maps").read_text()
    assert str(tmp_path / "graph/x.npy") in maps and str(tmp_path / "graph/indices.npy") in maps
    before = found.graph.x.clone()
    found.graph.x.zero_()
    assert torch.equal(load_chunked(tmp_path / "graph").graph.x, before)


def test_an_existing_folder_is_not_touched(tmp_path):
    with pytest.raises(FileExistsError):
        save_chunked(chunked_graph(2), tmp_path)
    assert not list(tmp_path.iterdir())
