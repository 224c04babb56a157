"""The report against numbers counted by hand, and the command line."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from gnnpar.errors import InputError
from gnnpar.partition import partition_graph, report
from tests.partition.graphs import cut_of, from_edges, planted


def test_numbers_of_a_graph_by_hand():
    """Directed: 0→1→2→3 and 0→2, 0→3, in parts {0, 1} and {2, 3}."""
    graph = from_edges(4, [0, 1, 2, 0, 0], [1, 2, 3, 2, 3])
    quality = report(graph, partition_graph(graph, 2, method="range"), [1, 1, 4, 2])
    assert quality.vertices == (2, 2) and quality.vertex_balance == 1.0
    assert quality.edges == (1, 4) and quality.edge_balance == pytest.approx(4 / 2.5)
    assert quality.cost == (2, 6) and quality.cost_balance == pytest.approx(1.5)
    assert quality.train == (1, 1) and quality.train_balance == 1.0
    assert quality.halo == (0, 2)  # part 1 reads vertices 0 and 1
    assert quality.cut == 3 and quality.cut_share == pytest.approx(3 / 5)
    assert quality.replication_factor == pytest.approx(6 / 4)


def test_halo_and_cut_agree_with_a_loop():
    graph = planted(between=4.0)
    partition = partition_graph(graph, 3, method="ldg")
    part = partition.assignment.tolist()
    halo = [set() for _ in range(3)]
    for u, v in graph.edge_index.T.tolist():
        if part[u] != part[v]:
            halo[part[v]].add(u)
    quality = report(graph, partition)
    assert quality.halo == tuple(map(len, halo))
    assert quality.cut == cut_of(graph, partition)
    assert quality.way_halo == ()


def test_halo_of_ways_is_that_of_their_parts_together():
    graph = planted(between=4.0)
    partition = partition_graph(graph, 6, method="ldg", num_groups=2)
    quality = report(graph, partition, num_ways=2)
    of_two = replace(partition, key=replace(partition.key, num_parts=2), offsets=partition.offsets[::3])
    assert quality.way_halo == report(graph, of_two).halo
    assert f"halo of 2 ways {sum(quality.way_halo):,}" in quality.summary()


def test_a_graph_without_edges_or_training_vertices():
    graph = from_edges(4, [], [])
    graph = graph.replace(train_mask=graph.val_mask)
    quality = report(graph, partition_graph(graph, 2))
    assert quality.edge_balance is None and quality.train_balance is None and quality.cut_share == 0.0
    assert json.loads(json.dumps(quality.to_json()))["edge_balance"] is None
    assert "train –" in quality.summary()


def test_another_graph_is_refused():
    with pytest.raises(InputError, match="partition this graph again"):
        report(planted(seed=1), partition_graph(planted(), 2, method="range"))


@pytest.mark.parametrize(("num_parts", "rows"), [(3, "2"), (100, "most")])
def test_table(num_parts, rows):
    graph = planted()
    quality = report(graph, partition_graph(graph, num_parts, method="range"))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(quality.table())
    text = console.export_text()
    for name in (
        "part",
        "vertices",
        "in-edges",
        "cost",
        "train",
        "halo",
        "max/mean",
        "replication factor",
        rows,
    ):
        assert name in text
