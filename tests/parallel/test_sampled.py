"""A sample of the boundary rows: as often as it says, the same on both ends, and right on average."""

import pytest
import torch
from support.graphs import chunk_assignment, tiny_graph
from support.loopback import Loopback, on_every_way

from gnnpar.batch import ChunkedGraph
from gnnpar.dist import Mesh
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.parallel import SampledHalo

DRAWS = 150


def parts(ways, seed=0):
    graph = tiny_graph()
    chunk_of = chunk_assignment(graph, ways, seed)
    offsets = (0, *torch.bincount(chunk_of, minlength=ways).cumsum(0).tolist())
    return ChunkedGraph(graph.permute(torch.argsort(chunk_of, stable=True)), offsets)


def halos_of(chunked, rate, seed=5):
    mesh, network = Mesh((chunked.num_chunks,), chunked.num_chunks), Loopback()
    return [
        SampledHalo(chunked, mesh, 0, way, network.of(way), rate, seed) for way in range(chunked.num_chunks)
    ]


def reads_of(chunked, steps):
    planner = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1, slot_size=chunked.num_chunks)
    return [planner.plan(step, tuple(range(chunked.num_chunks))) for step in range(steps)]


def mirrors(chunked, way):
    graph = chunked.graph
    by, of = chunked.chunk_of[graph.destinations], chunked.chunk_of[graph.indices.long()]
    return graph.indices[(by == way) & (of != way)].long().unique()


@pytest.mark.parametrize(("ways", "rate"), [(2, 0.3), (3, 0.75)])
def test_aggregations_and_gradients_are_right_on_average(ways, rate):
    """Means over independent steps against the exact value, in units of their known standard deviations."""
    chunked = parts(ways)
    halos = halos_of(chunked, rate)
    reads = reads_of(chunked, DRAWS)
    x = torch.randn(chunked.graph.num_nodes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def run(halo, way):
        chunk = chunked.chunks[way]
        own = slice(chunk.start, chunk.stop)
        seen, back = torch.zeros_like(x), torch.zeros_like(x)
        for step in reads:
            rows, sums = torch.zeros_like(x)[:, None], x.clone()[:, None]
            rows[own, 0] = x[own]
            halo.spread(rows, (chunk,), step, 0, "cut")
            sums[own] = 0.0
            halo.collect(sums, (chunk,), step, 0, "cut gradient")
            seen += rows[:, 0]
            back[own] += sums[own, 0]
        return seen / DRAWS, back / DRAWS

    deviation = ((1 - rate) / rate / DRAWS) ** 0.5
    scores = []
    for way, (seen, back) in enumerate(on_every_way(run, halos)):
        read, chunk = mirrors(chunked, way), chunked.chunks[way]
        own = torch.zeros_like(x, dtype=torch.bool)
        own[chunk.start : chunk.stop] = True
        assert torch.allclose(seen[own], x[own], rtol=1e-12)
        others = ~own
        others[read] = False
        assert not seen[others].any()
        scores.append((seen[read] - x[read]) / (x[read].abs() * deviation))
        # Every other way returned x itself for each row of this way that it reads.
        times = sum(torch.isin(torch.arange(len(x)), mirrors(chunked, w)) for w in range(ways) if w != way)
        wanted = x * times * own
        some = wanted != 0
        scores.append((back - wanted)[some] / (x[some].abs() * times[some].sqrt() * deviation))
        assert not back[~some].any()
    z = torch.cat(scores)
    # Forward and backward of a pair share their draw; else scores are independent, and stay below 4.5.
    assert len(z) > 30 and float(z.abs().max()) < 4.5
    assert 0.5 < float(z.square().mean()) < 1.7


def test_each_row_and_way_is_drawn_for_itself_and_once_a_step():
    chunked, rate = parts(3), 0.4
    halos = halos_of(chunked, rate)
    kept = []
    for step in reads_of(chunked, DRAWS):
        pairs = list(zip(halos, chunked.chunks, strict=True))
        routes = [halo.routes((chunk,), step, "cut") for halo, chunk in pairs]
        backward = [halo.routes((chunk,), step, "cut gradient") for halo, chunk in pairs]
        sets = {}
        for way, of_way in enumerate(routes):
            for route, same in zip(of_way, backward[way], strict=True):
                (back,) = [r for r in routes[route.peer] if r.peer == way]
                assert torch.equal(route.mine, back.theirs) and torch.equal(route.mine, same.mine)
                assert torch.equal(route.theirs, same.theirs)
                sets[way, route.peer] = route.theirs
        row = torch.zeros(3, chunked.graph.num_nodes)
        for (way, _), rows in sets.items():
            row[way, rows] = 1.0
        kept.append(row)
    kept = torch.stack(kept)
    for way in range(3):
        assert not kept[
            :, way, ~torch.isin(torch.arange(chunked.graph.num_nodes), mirrors(chunked, way))
        ].any()
    one, two = mirrors(chunked, 0), mirrors(chunked, 1)
    both = one[torch.isin(one, two)]
    assert len(both) > 2
    n = len(kept)
    spread = (rate * (1 - rate) / n) ** 0.5
    share = torch.cat([kept[:, 0, one].mean(0), kept[:, 1, two].mean(0)])
    assert float(((share - rate) / spread).abs().max()) < 4.5
    # Two ways that read one row, and one way in successive steps, draw independently.
    pair = (kept[:, 0, both] * kept[:, 1, both]).mean(0)
    deviation = (rate**2 * (1 - rate**2) / n) ** 0.5
    assert float(((pair - rate**2) / deviation).abs().max()) < 4.5
    after = (kept[1:, 0, one] * kept[:-1, 0, one]).mean(0)
    assert float(((after - rate**2) / deviation).abs().max()) < 6  # neighbouring products overlap


def test_rate_one_keeps_every_row():
    chunked = parts(2)
    (halo, _), (step,) = halos_of(chunked, 1.0), reads_of(chunked, 1)
    (route,) = halo.routes(chunked.chunks[:1], step, "cut")
    assert torch.equal(route.theirs, mirrors(chunked, 0))
