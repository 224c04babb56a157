"""The comparison can fail: each small departure from the definition lies far outside the tolerance."""

from functools import lru_cache

import pytest
from oracle.dense_reference import DenseReference
from oracle.driver import TOLERANCE, Case, mismatches, run_reference

ORDERS = ((0, 1, 2, 3), (2, 0, 3, 1), (3, 1, 0, 2), (1, 2, 3, 0))


class WithoutTranspose(DenseReference):
    """Backward through the rows of Â instead of Âᵀ."""

    def backward(self, *args):
        straight = self.matrices
        self.matrices = {k: matrix.T for k, matrix in straight.items()}
        super().backward(*args)
        self.matrices = straight


class WithoutCarryGradient(DenseReference):
    """h0 enters every layer as a constant."""

    def forward(self, *args):
        for layer in (self.layers[k] for k in self.graph_layers):
            layer.after = detached(type(layer).after.__get__(layer))
        return super().forward(*args)


class MeanOfMeans(DenseReference):
    """Each chunk's loss is its own mean."""

    def forward(self, own, visible):
        loss, *rest = super().forward(own, visible)
        count = max(int(self.wanted[own].sum()), 1)
        return loss * int(self.wanted.sum()) / count / 4, *rest


class OwnSlotScaled(DenseReference):
    """γ also on what a chunk sends to itself."""

    def backward(self, own, visible, scale, *tape):
        super().backward(own, visible, self.history.gamma * (scale > 0), *tape)


def detached(after):
    return lambda z, h, carries, rows: after(z, h, {k: v.detach() for k, v in carries.items()}, rows)


@lru_cache
def true_steps(case):
    return run_reference(case, ORDERS)


def differs(case, **changes):
    """Whether a changed reference is told apart from the true one."""
    lines = mismatches(true_steps(case), run_reference(case, ORDERS, **changes), tolerance=1e4 * TOLERANCE)
    return any("gradient" in line for line in lines)


def label(changes):
    return "-".join(f"{key}={getattr(value, '__name__', value)}" for key, value in changes.items())


def chunked(layer="gcnii", mode="snapshot", **keys):
    return Case(layer=layer, chunks=4, mode=mode, gamma=2.0, steps=len(ORDERS), **keys)


def test_the_same_meaning_is_the_same():
    assert not differs(chunked())


@pytest.mark.parametrize("layer", ["gcnii", "gat"])
@pytest.mark.parametrize(
    "changes",
    [
        {"gamma": 2.0 + 1e-4},
        {"gamma": 0.0},
        {"period": 3},
        {"warmup": 2},
        {"mode": "latest"},
        {"mode": "drop"},
        {"seed": 4},
        {"kind": MeanOfMeans},
        {"kind": OwnSlotScaled},
    ],
    ids=label,
)
def test_a_change_of_meaning_is_seen(layer, changes):
    assert differs(chunked(layer), **changes)


def test_another_order_is_seen():
    case = chunked()
    other = [tuple(reversed(order)) for order in ORDERS]
    lines = mismatches(true_steps(case), run_reference(case, other), tolerance=1e-4)
    assert any("gradient" in line for line in lines)


@pytest.mark.parametrize("layer", ["gcn", "sage", "gin", "gcnii", "resgcn"])
def test_a_missing_transpose_is_seen_on_a_directed_graph(layer):
    assert differs(chunked(layer), kind=WithoutTranspose)


def test_a_missing_transpose_hides_on_a_symmetric_graph():
    """Why every oracle runs on a directed graph too. SAGE is not fooled: its mean is not symmetric."""
    assert not differs(chunked("gcn", directed=False), kind=WithoutTranspose)
    assert differs(chunked("sage", directed=False), kind=WithoutTranspose)


def test_a_carry_without_gradient_is_seen():
    assert differs(chunked("gcnii"), kind=WithoutCarryGradient)


def test_the_trainer_is_told_apart_from_another_gamma(runs):
    case = Case(layer="gcnii", stages=2, chunks=4, mode="snapshot", gamma=2.0, steps=6)
    orders = [record.order for record in runs[case]]
    assert mismatches(runs[case], run_reference(case, orders)) == []
    assert mismatches(runs[case], run_reference(case, orders, gamma=2.0 + 1e-6)) != []
