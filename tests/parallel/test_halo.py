"""The exchange between ways: a way that does not come is named."""

from dataclasses import replace

import torch
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.errors import RunError
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.parallel import Halo
from gnnpar.trace import Recorder


def two_parts():
    graph = tiny_graph()
    chunk_of = chunk_assignment(graph, 2)
    offsets = (0, *torch.bincount(chunk_of, minlength=2).cumsum(0).tolist())
    return ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)


def wait_for_a_way(context, chunked):
    """Way 0 waits for way 1, which is alive but elsewhere."""
    if context.rank == 1:
        context.store.wait(["given up"])
        return None
    transport = Transport(replace(context, timeout_s=0.5), Recorder())
    halo = Halo(chunked, Mesh((2,), 2), 0, 0, transport)
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1, slot_size=2).plan(0, (0, 1))
    try:
        halo.spread(torch.zeros(chunked.graph.num_nodes, 3), chunked.chunks[:1], reads, 2, "cut")
    except RunError as error:
        return str(error)
    finally:
        context.store.set("given up", "yes")
    return "arrived"


def test_a_way_that_does_not_come_is_named(pool):
    text, _ = pool.run(wait_for_a_way, 2, two_parts(), timeout_s=20)
    assert text == "rank 0: waiting for cut of layer 2, slot 0 with rank 1: no answer within 0.5 s"
