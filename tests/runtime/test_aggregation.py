"""Aggregation of chunks against dense algebra, on a directed weighted graph.

Z[c] = Σ_d Â[c,d] X̃[d]        ∂X[c] = Σ_{d: π(d) ≥ π(c)} s(c,d) Â[d,c]ᵀ D[d],  s = 1 if π(d) = π(c), else γ
"""

import pytest
import torch
from runtime.cases import chunked_graph, dense_operator, visible_cut

from gnnpar.batch import chunk_order
from gnnpar.graph.norm import scales
from gnnpar.history import CutStore, HistoryPolicy, ReadsPlanner
from gnnpar.model import Layer, Pull, Push, Rows
from gnnpar.model.edges import edge_sum
from gnnpar.runtime.aggregation import PullAggregation
from gnnpar.runtime.push import PushAggregation

OPERATORS = [Pull(norm, self_loops) for norm in ("sym", "mean", "sum") for self_loops in (False, True)]
MODES = [("latest", 1), ("latest", 2), ("snapshot", 2), ("drop", 1)]
WIDTH = 3


class Tanh(Layer):
    """Z = Σ_u w_uv tanh(x_u) · x_v: linear in neither, and looks at the row's own value."""

    operator = Push()

    def aggregate(self, x, block, rows):
        messages = block.edge_weight[:, None] * x[block.columns].tanh() * x[block.rows]
        return edge_sum(messages, block.rows, block.num_rows)


def tanh_sum(adjacency, x, rows):
    return (adjacency[rows] @ x.tanh()) * x[rows]


class Run:
    """Steps of one aggregation, the cuts and the gradients of Z drawn at random."""

    def __init__(self, make, mode, copies, gamma=1.0, directed=True):
        self.chunked = chunked_graph(4, directed=directed, weighted=True)
        self.policy = HistoryPolicy(mode, 2, gamma, 1)
        self.planner = ReadsPlanner(self.chunked, self.policy, copies)
        self.aggregation = make(self.chunked, CutStore(self.chunked.graph.num_nodes, copies))
        self.draw = torch.Generator().manual_seed(0)
        self.history = None

    def random(self):
        return torch.randn(self.chunked.graph.num_nodes, WIDTH, generator=self.draw, dtype=torch.float64)

    def steps(self, number=5):
        """For every step: reads, π per vertex, the cut X, its history, Z, D, ∂X."""
        for step in range(number):
            order = chunk_order(4, 1, step)
            reads = self.planner.plan(step, order)
            at = torch.tensor(order).argsort()[self.chunked.chunk_of.long()] * (not reads.exact)
            x, d = self.random(), self.random()
            z, gradient = torch.zeros_like(x), torch.zeros_like(x)
            for slot in reads.slots:
                self.forward(slot, reads, x, z, step)
            for slot in reversed(reads.slots):
                for chunk in slot:
                    self.leaves[chunk].backward(d[chunk.start : chunk.stop])
                    self.aggregation.push_back(chunk, reads)
                for chunk in slot:
                    gradient[chunk.start : chunk.stop] = self.aggregation.pull_back(chunk, reads)
                self.aggregation.carry(slot, reads)
            yield reads, at, x, self.history, z, d, gradient
            if self.policy.mode == "latest" or self.policy.closes(step):
                self.history = x

    def forward(self, slot, reads, x, z, step):
        self.leaves = getattr(self, "leaves", {})
        for chunk in slot:
            self.aggregation.write(chunk, x[chunk.start : chunk.stop], reads)
        for chunk in slot:
            rows = Rows(self.chunked.graph.node_ids[chunk.start : chunk.stop], 0, step, 1, True)
            self.leaves[chunk] = self.aggregation.forward(chunk, rows, reads)
            z[chunk.start : chunk.stop] = self.leaves[chunk].detach()

    def visible(self, chunk, at, x, history):
        """X̃; what is left out is zero, and no history must be needed before there is one."""
        missing = torch.zeros_like(x) if self.policy.mode == "drop" else torch.full_like(x, torch.nan)
        history = missing if history is None or self.policy.mode == "drop" else history
        return visible_cut(chunk, at, x, history)


def pull(operator):
    return lambda chunked, cut: PullAggregation(cut, scales(chunked.graph, operator, torch.float64))


@pytest.mark.parametrize(("mode", "copies"), MODES)
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_pull_is_the_dense_product(operator, mode, copies):
    run = Run(pull(operator), mode, copies)
    a = dense_operator(run.chunked.graph, operator)
    for _, at, x, history, z, _, _ in run.steps():
        for chunk in run.chunked.chunks:
            seen = run.visible(chunk, at, x, history)
            torch.testing.assert_close(
                z[chunk.start : chunk.stop], a[chunk.start : chunk.stop] @ seen, rtol=1e-13, atol=1e-13
            )


@pytest.mark.parametrize(("mode", "copies"), MODES)
@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("operator", [Pull("sym", True), Pull("mean"), Pull("sum", True)], ids=str)
@pytest.mark.parametrize("directed", [True, False])
def test_pull_back_is_the_transposed_product_with_gamma(operator, gamma, mode, copies, directed):
    run = Run(pull(operator), mode, copies, gamma, directed)
    a = dense_operator(run.chunked.graph, operator)
    for reads, at, _, _, _, d, gradient in run.steps():
        s = (at[:, None] == at).double() + (0.0 if reads.exact else gamma) * (at[:, None] > at).double()
        torch.testing.assert_close(gradient, (s * a).T @ d, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operator", [Pull("sym", True), Pull("sum")], ids=str)
def test_mixed_steps_are_the_plain_ones_with_a_residual(operator):
    share = 0.3
    run = Run(pull(operator), "latest", 1)
    a = dense_operator(run.chunked.graph, operator)
    reads = run.planner.exact
    x, residual, d = run.random(), run.random(), run.random()
    for chunk in run.chunked.chunks:
        run.aggregation.write(chunk, x[chunk.start : chunk.stop], reads)
    for chunk in run.chunked.chunks:
        own = slice(chunk.start, chunk.stop)
        z = run.aggregation.forward_mixed(chunk, reads, residual[own], share)
        torch.testing.assert_close(z, (1 - share) * a[own] @ x + share * residual[own])
        assert torch.equal(run.aggregation.stored_z(chunk), z)
    for chunk in run.chunked.chunks:
        own = slice(chunk.start, chunk.stop)
        of_residual = torch.ones(chunk.num_rows, WIDTH).double()  # what later layers have sent back so far
        run.aggregation.push_back_mixed(chunk, d[own], share, of_residual)
        torch.testing.assert_close(of_residual, 1 + share * d[own])
    found = torch.cat([run.aggregation.pull_back(chunk, reads) for chunk in run.chunked.chunks])
    torch.testing.assert_close(found, (1 - share) * a.T @ d)


def test_a_cut_can_be_written_in_place():
    run = Run(pull(Pull("sym", True)), "snapshot", 2)
    chunk, reads = run.chunked.chunks[1], run.planner.plan(0, (0, 1, 2, 3))
    x = run.random()[chunk.start : chunk.stop]
    out = run.aggregation.rows_to_write(chunk, x, reads)
    out.copy_(x * run.aggregation.column_scale(chunk)[:, None])
    stored = run.aggregation.cut.buffer.clone()
    run.aggregation.write(chunk, x, reads)
    torch.testing.assert_close(run.aggregation.cut.buffer, stored)
    assert torch.equal(run.aggregation.stored_cut(chunk, reads), out)


def test_a_chunk_whose_z_nobody_used_sends_no_gradient_back():
    for make in (pull(Pull("mean")), lambda _, cut: PushAggregation(cut, Tanh())):
        run = Run(make, "latest", 1)
        reads = run.planner.exact
        run.forward(reads.slots[0], reads, run.random(), run.random(), 0)
        for chunk in run.chunked.chunks:
            run.aggregation.push_back(chunk, reads)
        for chunk in run.chunked.chunks:
            assert not run.aggregation.pull_back(chunk, reads).any()


@pytest.mark.parametrize(("mode", "copies"), MODES)
@pytest.mark.parametrize("gamma", [0.0, 0.7, 2.0])
def test_push_runs_and_differentiates_the_operator_column_by_column(mode, copies, gamma):
    run = Run(lambda _, cut: PushAggregation(cut, Tanh()), mode, copies, gamma)
    a = dense_operator(run.chunked.graph, Pull("sum"))
    for reads, at, x, history, z, d, gradient in run.steps():
        wanted = torch.zeros_like(x)
        for chunk in run.chunked.chunks:
            own = slice(chunk.start, chunk.stop)
            here = at[chunk.start]
            seen = run.visible(chunk, at, x, history).nan_to_num(0.0 if reads.exact else 1e9)
            seen = seen.requires_grad_()
            rows = torch.arange(chunk.start, chunk.stop)
            out = tanh_sum(a, seen, rows)
            torch.testing.assert_close(z[own], out.detach(), rtol=1e-13, atol=1e-13)
            (back,) = torch.autograd.grad(out, seen, d[own])
            wanted += ((at == here).double() + gamma * (at < here).double())[:, None] * back
        torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)
        assert not run.aggregation.gradient.any()  # zero between steps


def test_evaluation_over_another_cut_leaves_the_histories():
    for make in (pull(Pull("sym", True)), lambda _, cut: PushAggregation(cut, Tanh())):
        run = Run(make, "latest", 1)
        list(run.steps(2))
        kept = run.aggregation.cut.buffer.clone()
        other = run.aggregation.over(CutStore(run.chunked.graph.num_nodes, 1), None)
        with torch.no_grad():
            for chunk in run.chunked.chunks:
                other.write(chunk, run.random()[: chunk.num_rows], run.planner.exact)
            for chunk in run.chunked.chunks:
                rows = Rows(run.chunked.graph.node_ids[chunk.start : chunk.stop], 0, 0, 1, False)
                assert not other.forward(chunk, rows, run.planner.exact).requires_grad
        assert torch.equal(run.aggregation.cut.buffer, kept)
