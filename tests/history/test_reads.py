"""What a step reads, found by running steps over a buffer that holds when each row was written.

The cut of vertex v written in step t is the number t · N + v; unwritten rows hold -1.
"""

import pytest
import torch
from runtime.cases import chunked_graph

from gnnpar.batch import chunk_order
from gnnpar.history import HistoryPolicy, ReadsPlanner

MODES = [("latest", 1), ("latest", 2), ("snapshot", 2), ("drop", 1)]


class Simulation:
    """Runs the write and read accesses of a stage over a buffer of stamps."""

    def __init__(self, mode, copies, *, period=2, warmup=1, chunks=4, gamma=1.0, **keys):
        self.chunked = chunked_graph(chunks, **keys)
        self.graph = self.chunked.graph
        self.policy = HistoryPolicy(mode, period, gamma, warmup)
        self.planner = ReadsPlanner(self.chunked, self.policy, copies)
        self.buffer = torch.full((copies * self.graph.num_nodes,), -1)

    def plan(self, step):
        order = chunk_order(self.chunked.num_chunks, 3, step)
        return self.planner.plan(step, order), order

    def write(self, chunk, reads, step):
        stamps = step * self.graph.num_nodes + torch.arange(chunk.start, chunk.stop)
        self.buffer[reads.live + chunk.start : reads.live + chunk.stop] = stamps

    def read_edges(self, chunk, reads):
        """Row and stamp of every edge that the chunk's rows read, in CSR order."""
        edges = reads.forward_edges
        first, last = edges.indptr[chunk.start], edges.indptr[chunk.stop]
        counts = edges.indptr[chunk.start : chunk.stop + 1].diff()
        rows = torch.repeat_interleave(torch.arange(chunk.start, chunk.stop), counts)
        return rows, self.buffer[reads.forward_base + edges.indices[first:last].long()]

    def expected(self, chunk, position, step, history):
        """The same from the definition; `history` is the step that histories are of (None: left out)."""
        n = self.graph.num_nodes
        rows, sources, stamps = [], [], []
        for row in range(chunk.start, chunk.stop):
            for source in self.graph.indices[self.graph.indptr[row] : self.graph.indptr[row + 1]].tolist():
                current = position[self.chunked.chunk_of[source]] <= position[chunk.index]
                if not current and history is None:
                    continue
                rows.append(row)
                sources.append(source)
                stamps.append((step if current else history) * n + source)
        return torch.tensor(rows), torch.tensor(sources), torch.tensor(stamps)


@pytest.mark.parametrize(("mode", "copies"), MODES)
@pytest.mark.parametrize(("warmup", "period"), [(1, 1), (1, 3), (3, 2)])
def test_no_step_reads_an_unwritten_or_an_overwritten_row(mode, copies, warmup, period):
    run = Simulation(mode, copies, warmup=warmup, period=period)
    chunks, snapshot = run.chunked.chunks, None
    for step in range(warmup + 2 * period + 3):
        reads, order = run.plan(step)
        history = {"latest": step - 1, "snapshot": snapshot, "drop": None}[mode]
        if step < warmup:
            slots, position = [chunks], [0] * len(chunks)
        else:
            slots = [(chunks[c],) for c in order]
            position = [order.index(c) for c in range(len(chunks))]
        assert list(reads.slots) == [tuple(slot) for slot in slots]
        assert reads.exact == (step < warmup)
        historical = 0
        for slot in slots:
            for chunk in slot:
                run.write(chunk, reads, step)
            for chunk in slot:
                rows, sources, stamps = run.expected(chunk, position, step, history)
                found = run.read_edges(chunk, reads)
                assert torch.equal(found[0], rows) and torch.equal(found[1], stamps)
                columns = reads.columns(chunk)
                by_column = run.buffer[columns.buffer_rows][columns.block.columns]
                assert torch.equal(by_column, stamps)
                assert torch.equal(columns.vertices[columns.block.columns], sources)
                old = stamps < step * run.graph.num_nodes
                historical += int(old.sum())
                if old.any():
                    assert set((stamps[old] // run.graph.num_nodes).tolist()) == {step - reads.age}
        assert reads.history_share == historical / run.graph.num_edges
        assert bool(reads.age) == bool(historical)
        if run.policy.closes(step):
            snapshot = step


@pytest.mark.parametrize("mode", ["latest", "snapshot"])
def test_with_two_copies_a_step_finds_at_its_end_what_its_chunks_read(mode):
    run = Simulation(mode, copies=2, period=2)
    for step in range(8):
        reads, _ = run.plan(step)
        seen = {}
        for slot in reads.slots:
            for chunk in slot:
                run.write(chunk, reads, step)
            for chunk in slot:
                seen[chunk] = run.buffer[reads.columns(chunk).buffer_rows]
        for chunk, stamps in seen.items():
            assert torch.equal(run.buffer[reads.columns(chunk).buffer_rows], stamps)


@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("directed", [True, False])
def test_gradients_come_back_along_edges_to_chunks_that_run_no_earlier(gamma, directed):
    run = Simulation("latest", 1, gamma=gamma, directed=directed, weighted=True)
    graph = run.graph
    for step in range(3):
        reads, order = run.plan(step)
        at = torch.tensor(order).argsort()[run.chunked.chunk_of.long()] * (step > 0)
        source, destination = graph.edge_index
        keep = at[destination] == at[source] if gamma == 0 and step else at[destination] >= at[source]
        wanted = torch.zeros(graph.num_nodes, graph.num_nodes).double()
        wanted[source[keep], destination[keep]] = graph.edge_weight[keep]
        edges = reads.backward_edges
        rows = torch.repeat_interleave(torch.arange(graph.num_nodes), edges.indptr.diff())
        found = torch.zeros_like(wanted)
        found[rows, edges.indices.long()] = edges.weight
        assert torch.equal(found, wanted) and len(rows) == int(keep.sum())
        assert reads.carried_factor == (gamma if gamma and step else 1.0)
        for chunk in run.chunked.chunks:
            columns = reads.columns(chunk)
            there, here = at[columns.vertices], at[chunk.start]
            factor = (there == here).double() + gamma * (there < here).double()
            assert torch.equal(columns.gradient_factor.double(), factor)


def test_drop_reads_a_block_of_current_columns_only():
    run = Simulation("drop", 1, weighted=True)
    reads, order = run.plan(1)
    at = torch.tensor(order).argsort()[run.chunked.chunk_of.long()]
    for chunk in run.chunked.chunks:
        columns = reads.columns(chunk)
        assert bool((at[columns.vertices] <= at[chunk.start]).all())
        assert torch.equal(
            columns.block.in_degree, run.chunked.degrees[0][columns.vertices]
        )  # of the whole graph still
    again, _ = run.plan(2)
    assert any(
        again.columns(chunk).block.num_edges != reads.columns(chunk).block.num_edges
        for chunk in run.chunked.chunks
    )


def test_columns_are_made_once_a_step_and_blocks_once():
    run = Simulation("latest", 1)
    reads, _ = run.plan(1)
    later, _ = run.plan(2)
    chunk = run.chunked.chunks[0]
    assert reads.columns(chunk) is reads.columns(chunk)
    assert reads.columns(chunk).block is later.columns(chunk).block
    assert reads.forward_edges is reads.forward_edges


def test_one_chunk_is_always_exact():
    run = Simulation("snapshot", 2, chunks=1)
    for step in range(4):
        reads, _ = run.plan(step)
        assert reads.exact and reads.age == 0 and reads.history_share == 0.0


def test_a_model_that_looks_across_rows_sees_an_exact_slot_as_one_chunk():
    chunked = chunked_graph(4)
    planner = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1, chunk_dependent=True)
    assert planner.plan(0, (0, 1, 2, 3)).slots == ((chunked.whole,),)
    assert planner.exact.slots == ((chunked.whole,),)
    assert len(planner.plan(1, (0, 1, 2, 3)).slots) == 4


def test_evaluation_is_exact_over_one_copy():
    run = Simulation("snapshot", 2)
    exact = run.planner.exact
    assert exact.exact and (exact.live, exact.forward_base, exact.age) == (0, 0, 0)
    assert exact.forward_edges.indices is run.graph.indices


STREAMS = (0, 1, 1, 0)


@pytest.mark.parametrize(("mode", "copies"), MODES)
@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_chunks_of_another_replica_are_read_from_history_and_send_no_gradient(mode, copies, gamma):
    run = Simulation(mode, copies, gamma=gamma, weighted=True)
    planner = ReadsPlanner(run.chunked, run.policy, copies, streams=STREAMS)
    graph, order = run.graph, (2, 0, 3, 1)
    assert planner.plan(0, order).views == () and planner.plan(0, order).ran(0) == run.chunked.chunks
    reads = planner.plan(1, order)
    at = torch.tensor(order).argsort()[run.chunked.chunk_of.long()]
    stream = torch.tensor(STREAMS)[at]
    row, column = graph.destinations, graph.indices.long()
    current = (at[column] <= at[row]) & (stream[column] == stream[row])
    assert reads.history_share == (0.0 if mode == "drop" else float((~current).double().mean()))
    for replica in (0, 1):
        view = reads.of(replica)
        assert [chunk.index for chunk in view.ran(replica)] == [
            c for c, s in zip(order, STREAMS, strict=True) if s == replica
        ]
        for chunk in view.ran(replica):
            rows = slice(chunk.start, chunk.stop)
            mine = (row >= chunk.start) & (row < chunk.stop)
            kept = mine & current if mode == "drop" else mine
            edges = view.forward_edges
            read = edges.indices[edges.indptr[chunk.start] : edges.indptr[chunk.stop]] + view.forward_base
            fresh = torch.where(current, view.live, view.stale)[kept]
            assert torch.equal(read.long(), column[kept] + fresh)
            columns = view.columns(chunk)
            same = stream[columns.vertices] == replica
            there = at[columns.vertices]
            factor = (there == at[chunk.start]).double() + gamma * (there < at[chunk.start]).double()
            assert torch.equal(columns.gradient_factor.double(), factor * same)

            source, destination = graph.edge_index
            back = (at[destination] >= at[source]) if gamma else (at[destination] == at[source])
            back &= (stream[destination] == replica) & (source >= chunk.start) & (source < chunk.stop)
            wanted = torch.zeros(graph.num_nodes, graph.num_nodes).double()
            wanted[source[back], destination[back]] = graph.edge_weight[back]
            edges = view.backward_edges
            first, last = edges.indptr[chunk.start], edges.indptr[chunk.stop]
            counts = edges.indptr[chunk.start : chunk.stop + 1].diff()
            found = torch.zeros_like(wanted)
            here = torch.repeat_interleave(torch.arange(chunk.start, chunk.stop), counts)
            found[here, edges.indices[first:last].long()] = edges.weight[first:last]
            assert torch.equal(found[rows], wanted[rows])
