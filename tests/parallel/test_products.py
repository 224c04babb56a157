"""Sums that ways compute together, against a dense product; and the index lists of their parts."""

import pytest
import torch
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.history import CutStore, HistoryPolicy, ReadsPlanner
from gnnpar.model import GAT
from gnnpar.model.rows import Rows
from gnnpar.parallel import FeatureSlices, PartByPart, Peers
from gnnpar.parallel.part_by_part import part_of
from gnnpar.runtime.own_rows import OwnRowsPush
from gnnpar.runtime.push import PushAggregation
from gnnpar.trace import Recorder


def chunked_graph(count, **keys):
    graph = tiny_graph(**keys)
    chunk_of = chunk_assignment(graph, count)
    offsets = (0, *torch.bincount(chunk_of, minlength=count).cumsum(0).tolist())
    return ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)


def matrix(graph):
    weight = torch.ones(graph.num_edges).double() if graph.edge_weight is None else graph.edge_weight
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    return dense.index_put_((graph.destinations, graph.indices.long()), weight, accumulate=True)


def reads_of(chunked, mesh):
    """Of a step with one slot."""
    planner = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1, slot_size=mesh.slot_size)
    return planner.plan(0, tuple(range(mesh.num_chunks)))


def multiply(context, chunked, mesh, x, scale):
    """For the pool: this way's rows of every product, and the bytes sent."""
    recorder = Recorder()
    peers = Peers(chunked, mesh, 0, context.rank, Transport(context, recorder))
    reads = reads_of(chunked, mesh)
    rows, found = slice(peers.own.start, peers.own.stop), {}
    for kind in (FeatureSlices, PartByPart):
        for layer, (back, scaled, loops) in enumerate(
            [(a, b, c) for a in OFF_ON for b in OFF_ON for c in OFF_ON]
        ):
            out = torch.full_like(x[rows], float("nan"))
            keys = {"back": back, "scale": scale if scaled else None, "self_loops": loops}
            kind(peers).multiply(x[rows].clone(), out, reads, layer, **keys)
            found[kind.__name__, back, scaled, loops] = rows, out
    return found, recorder.bytes_by_kind()


OFF_ON = (False, True)


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize("directed", OFF_ON)
@pytest.mark.parametrize("width", [5, 1])
def test_products_are_those_of_the_whole_matrix(pool, ways, directed, width):
    chunked = chunked_graph(6, directed=directed, weighted=True)
    x = torch.randn(40, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ranks = pool.run(multiply, ways, chunked, Mesh((ways,), 6), x, scale, timeout_s=60)
    dense = matrix(chunked.graph)
    for found, sent in ranks:
        assert set(sent) == {"feature", "halo"}
        for (kind, back, scaled, loops), (rows, out) in found.items():
            wanted = (dense.T if back else dense) @ x + (x if loops else 0)
            wanted = wanted * scale[:, None] if scaled else wanted
            assert torch.allclose(out, wanted[rows], rtol=0, atol=1e-12), (kind, back, scaled, loops)


def aggregate(reads, chunks, aggregation, x, share=lambda: None, share_back=lambda: None):
    """Z and ∂X of some chunks of the only slot, where the loss is Σ Z²."""
    for chunk in chunks:
        aggregation.write(chunk, x[chunk.start : chunk.stop], reads)
    share()
    ids, found = reads.planner.chunked.graph.node_ids, []
    for chunk in chunks:
        rows = Rows(ids[chunk.start : chunk.stop], 0, 0, 0, True, False)
        found.append(aggregation.forward(chunk, rows, reads))
        found[-1].square().sum().backward()
    for chunk in chunks:
        aggregation.push_back(chunk, reads)
    share_back()
    back = [aggregation.pull_back(chunk, reads).clone() for chunk in chunks]
    aggregation.carry(chunks, reads)
    return torch.cat(found).detach(), torch.cat(back)


def make_layer():
    torch.manual_seed(0)
    return GAT(6, 3, heads=2, attention_dropout=0.2).double()


def aggregate_together(context, chunked, mesh, x):
    """For the pool: a way's Z and ∂X of a push layer, twice: nothing is left over."""
    peers = Peers(chunked, mesh, 0, context.rank, Transport(context, Recorder()))
    reads = reads_of(chunked, mesh)
    chunks = [chunked.chunks[index] for index in mesh.chunks_of(0, context.rank)]
    cut = CutStore(len(peers.own), 1, first=peers.own.start)
    one = OwnRowsPush(cut, make_layer(), PartByPart(peers))
    both = [lambda: one.share(chunks, reads, None, 4), lambda: one.share_back(chunks, reads, None, 4)]
    return [aggregate(reads, chunks, one, x, *both) for _ in range(2)], peers.own


def test_several_chunks_of_a_way_share_what_was_fetched(pool):
    chunked, mesh = chunked_graph(6), Mesh((2,), 6)
    x = torch.randn(40, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reads = reads_of(chunked, mesh)
    wanted = aggregate(reads, chunked.chunks, PushAggregation(CutStore(40, 1), make_layer()), x)
    for found, own in pool.run(aggregate_together, 2, chunked, mesh, x, timeout_s=60):
        for pair in found:
            for one, two in zip(pair, wanted, strict=True):
                assert torch.allclose(one, two[own.start : own.stop], rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", OFF_ON)
def test_parts_add_up_to_the_rows(weighted):
    graph = tiny_graph(weighted=weighted)
    dense, ranges = matrix(graph), (range(15), range(15, 16), range(16, 40))
    edges = graph.indptr, graph.indices, graph.edge_weight
    for readers in ranges:
        for sources in ranges:
            part = part_of(edges, readers, sources)
            found = torch.zeros(len(readers), len(sources), dtype=torch.float64)
            reader = torch.repeat_interleave(torch.arange(len(readers)), part.indptr.diff())
            source = part.rows[part.indices.long()]
            value = torch.ones(source.numel()).double() if part.weight is None else part.weight
            found.index_put_((reader, source), value, accumulate=True)
            assert torch.equal(found, dense[readers.start : readers.stop, sources.start : sources.stop])
            assert part.rows.tolist() == sorted(set(source.tolist()))
