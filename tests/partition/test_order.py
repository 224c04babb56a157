"""The order inside a part: it stays inside the part, and brings neighbours nearer."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnpar.graph.graph import Graph
from gnnpar.partition import INNER_ORDERS, order, partition_graph
from tests.partition.graphs import planted


def misses(graph, partition, num_rows):
    """Share of reads that miss a cache of `num_rows` rows (direct mapped), in the partition's numbering."""
    indices = graph.permute(partition.order).indices.long().numpy()
    slot = indices % num_rows
    by_slot = np.argsort(slot, kind="stable")
    same = (np.diff(slot[by_slot]) == 0) & (np.diff(indices[by_slot]) == 0)
    return 1 - same.sum() / indices.size


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(order, "CELL_SIZE", 50)


@pytest.mark.parametrize("inner_order", INNER_ORDERS)
@pytest.mark.parametrize("method", ["metis", "random", "range"])
def test_the_parts_stay_the_same(inner_order, method, small_cells):
    graph = planted(num_groups=8, size=50)
    plain = partition_graph(graph, 2, method=method, inner_order="none")
    ordered = partition_graph(graph, 2, method=method, inner_order=inner_order)
    assert torch.equal(plain.assignment, ordered.assignment)
    assert torch.equal(plain.offsets, ordered.offsets)


def test_none_keeps_ascending_ids():
    partition = partition_graph(planted(), 3, inner_order="none")
    for c in range(3):
        members = partition.order[partition.offsets[c] : partition.offsets[c + 1]]
        assert (members.diff() > 0).all()


def test_orders_bring_neighbours_nearer(small_cells):
    """One part of eight hidden groups: only the cells find them."""
    graph = planted(num_groups=8, size=50, between=1.0)
    share = {how: misses(graph, partition_graph(graph, 1, inner_order=how), 50) for how in INNER_ORDERS}
    assert share["metis"] < 0.7 * share["none"]
    assert share["metis"] < share["rcm"] < share["none"]


def test_cells_are_contiguous(small_cells):
    """Isolated groups as cells: each is one range of the new numbering."""
    graph = planted(num_groups=4, size=50, between=0.0)
    numbered = graph.permute(partition_graph(graph, 1, inner_order="metis").order)
    src, dst = numbered.edge_index
    assert (src // 50 == dst // 50).all()


@pytest.mark.skipif("GNNPAR_TEST_DATA" not in os.environ, reason="GNNPAR_TEST_DATA is not set")
def test_orders_on_a_real_graph():
    with np.load(Path(os.environ["GNNPAR_TEST_DATA"], "pubmed.npz")) as file:
        graph = Graph.from_edge_index(file["edge_index"].astype(np.int64), num_nodes=int(file["num_nodes"]))
    share = {how: misses(graph, partition_graph(graph, 4, inner_order=how), 1024) for how in INNER_ORDERS}
    assert share["metis"] < 0.75 * share["none"]
