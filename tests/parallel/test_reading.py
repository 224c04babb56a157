"""Index lists of the halo against sets counted edge by edge; both ends of every message agree."""

import pytest
import torch
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph, slot_order
from gnnpar.dist import Mesh
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.parallel import Halo, Reading, reading
from gnnpar.partition import partition_graph


def chunked_graph(count, directed=True):
    graph = tiny_graph(directed)
    chunk_of = chunk_assignment(graph, count)
    offsets = (0, *torch.bincount(chunk_of, minlength=count).cumsum(0).tolist())
    return ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)


@pytest.mark.parametrize("ways", [1, 2, 4])
@pytest.mark.parametrize("directed", [True, False])
def test_rows_and_readers_are_those_of_the_edges(ways, directed):
    chunked = chunked_graph(8, directed)
    graph, chunk_of, width = chunked.graph, chunked.chunk_of.tolist(), 8 // ways
    edges = list(zip(graph.indices.tolist(), graph.destinations.tolist(), strict=True))
    for way in range(ways):
        wanted = {}
        for row, reader in edges:
            ends = chunk_of[row] // width, chunk_of[reader] // width
            if ends[0] != ends[1] and way in ends:
                of = wanted.setdefault((chunk_of[row], ends[1]), {})
                of.setdefault(row, set()).add(chunk_of[reader] % width)
        chunks_of = [Mesh((ways,), 8).chunks_of(0, one) for one in range(ways)]
        found = reading(chunked, graph.indices, graph.destinations, way, chunks_of)
        assert found.keys() == wanted.keys()
        assert bool(found) == (ways > 1)
        for key, lists in found.items():
            assert lists.rows.tolist() == sorted(wanted[key])
            for row, readers in zip(lists.rows.tolist(), lists.readers, strict=True):
                assert set(readers.nonzero()[:, 0].tolist()) == wanted[key][row]


def test_rows_read_by_some_chunks():
    table = torch.tensor([[True, False], [False, True], [True, True]])
    lists = Reading(torch.tensor([3, 5, 9]), table)
    of = {(a, b): lists.read_by(torch.tensor([a, b])).tolist() for a in (True, False) for b in (True, False)}
    assert of[True, True] == [3, 5, 9]
    assert of[True, False] == [3, 9]
    assert of[False, True] == [5, 9]
    assert of[False, False] == []


@pytest.mark.parametrize("mode", ["latest", "snapshot", "drop"])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("ways", [(2,), (3,), (2, 3)])
def test_both_ends_of_a_message_agree(ways, gamma, mode):
    """What one way sends is what the other one waits for, in every slot of every step."""
    mesh = Mesh(ways, 12)
    chunked = chunked_graph(12)
    planner = ReadsPlanner(chunked, HistoryPolicy(mode, 2, gamma, 1), 2, slot_size=mesh.slot_size)
    kinds = "cut", "aggregation gradient", "cut gradient"
    crossing = dict.fromkeys(kinds, 0)
    for column, count in enumerate(ways):
        halos = [Halo(chunked, mesh, column, way, transport=None) for way in range(count)]
        for step in range(4):
            num_slots = 12 // mesh.slot_size
            reads = planner.plan(step, slot_order(num_slots, mesh.slot_size, 0, step))
            for slot in reads.slots:
                for what in kinds:
                    routes = [
                        {
                            route.peer - mesh.process_of(column): route
                            for route in halo.routes(slot, reads, what)
                        }
                        for halo in halos
                    ]
                    for way, of_way in enumerate(routes):
                        assert of_way.keys() == set(range(count)) - {way}
                        for peer, route in of_way.items():
                            assert torch.equal(route.mine, routes[peer][way].theirs)
                            owner = chunked.chunk_of[route.mine] * count // 12
                            assert bool((owner == way).all())
                            crossing[what] += route.mine.numel()
    assert min(crossing.values()) > 0


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("ways", [2, 4])
def test_inner_rows_are_those_before_the_first_that_needs_another_way(ways, directed):
    """With boundary vertices last, all rows that need none, or all but those that only the other direction
    counts."""
    graph = tiny_graph(directed, num_nodes=120)
    partition = partition_graph(graph, 8, num_groups=ways)
    chunked = ChunkedGraph.build(graph, partition, ways)
    assert torch.equal(ChunkedGraph.build(graph, partition).graph.node_ids, partition.order)
    offsets, mesh = list(chunked.offsets), Mesh((ways,), 8)
    assert offsets == partition.offsets.tolist()
    way_of = chunked.chunk_of // (8 // ways)
    source, target = chunked.graph.indices.long(), chunked.graph.destinations
    crosses = way_of[source] != way_of[target]
    found = 0
    for way in range(ways):
        halo = Halo(chunked, mesh, 0, way, transport=None)
        for index in mesh.chunks_of(0, way):
            chunk = chunked.chunks[index]
            within = range(chunk.start, chunk.stop)
            ids = (
                order[chunk.start : chunk.stop].tolist()
                for order in (chunked.graph.node_ids, partition.order)
            )
            assert len(set(map(frozenset, ids))) == 1
            ends = {"cut": target[crosses].tolist(), "aggregation gradient": source[crosses].tolist()}
            for what, needing in ends.items():
                count = next((row - chunk.start for row in within if row in needing), chunk.num_rows)
                assert halo.inner(chunk, what) == count
                found += count
            alone = [row for row in within if row not in ends["cut"] + ends["aggregation gradient"]]
            assert alone == list(within[: len(alone)])
    assert found > 0
