"""Where a stage is cut, and what a segment keeps."""

import torch
from torch import nn

from gnnpar.model import Layer, LayerStack, Pull, Rows
from gnnpar.model.layers import GAT, GCN, GCNII
from gnnpar.runtime.segment import State, cut_segments


class Residual(Layer):
    operator = Pull("mean")
    reads_input = True

    def after(self, z, h, carries, rows):
        return z + h


class Writes(Layer):
    operator = None
    writes = ("twice",)

    def after(self, z, h, carries, rows):
        return h + 1, {"twice": 2 * h}


class Reads(Layer):
    operator = None
    reads = ("twice",)

    def after(self, z, h, carries, rows):
        return h + carries["twice"]


def numbered(stack):
    return list(enumerate(stack.all_layers()))


def rows_of(n):
    return lambda index: Rows(torch.arange(n), 0, 0, index, True)


def test_a_stage_is_cut_at_its_aggregations():
    stack = LayerStack(nn.Linear(4, 6), [GCN(6, 6), nn.ReLU(), GAT(6, 6), GCNII(6, 1)], nn.Linear(6, 2))
    layers = numbered(stack)
    segments = cut_segments(layers)
    pieces = [
        (s.behind and s.behind[0], [index for index, _ in s.inner], s.ahead and s.ahead[0]) for s in segments
    ]
    assert pieces == [(None, [0], 1), (1, [2], 3), (3, [], 4), (4, [5], None)]
    covered = [i for s in segments for i in ([s.behind[0]] if s.behind else []) + [k for k, _ in s.inner]]
    assert covered == list(range(len(layers)))


def test_a_stage_without_aggregations_is_one_segment():
    stack = LayerStack(nn.Linear(4, 6), [nn.ReLU()], nn.Linear(6, 2))
    (segment,) = cut_segments(numbered(stack))
    assert segment.behind is None and segment.ahead is None and len(segment.inner) == 3


def test_the_rows_are_kept_only_where_the_next_layer_looks_at_them():
    for layer, kept in ((Residual(), True), (GCN(6, 6), False)):
        stack = LayerStack(nn.Linear(4, 6), [layer], nn.Linear(6, 2))
        first, last = cut_segments(numbered(stack))
        assert first.keeps_input is kept and last.keeps_input is True
        cut, state = first.run(None, State(torch.randn(3, 4), {}), rows_of(3))
        assert cut.shape == (3, 6) and (state.h is not None) is kept
        _, state = last.run(torch.ones(3, 6), state, rows_of(3))
        assert state.h.shape == (3, 2)


def test_the_encoders_output_becomes_a_carry():
    stack = LayerStack(nn.Linear(4, 6), [GCNII(6, 1)], nn.Linear(6, 2))
    first, last = cut_segments(numbered(stack), keeps={0: "h0"})
    x = torch.randn(3, 4)
    cut, state = first.run(None, State(x, {}), rows_of(3))
    assert torch.equal(state.carries["h0"], stack.encoder.after(x, x, {}, rows_of(3)(0)))
    assert torch.equal(cut, state.carries["h0"])
    _, after = last.run(cut, state, rows_of(3))
    assert after.carries["h0"] is state.carries["h0"]


def test_written_carries_travel_on_and_the_given_state_stays():
    (segment,) = cut_segments([(0, Writes()), (1, Reads())])
    h, given = torch.randn(3, 4), {}
    _, state = segment.run(None, State(h, given), rows_of(3))
    assert torch.equal(state.h, h + 1 + 2 * h) and given == {}
    assert torch.equal(state.carries["twice"], 2 * h)


def test_the_last_layer_looks_at_selected_rows_only():
    class Noted(Layer):
        operator = None
        reads = ("twice",)

        def after(self, z, h, carries, rows):
            self.seen = rows.ids.tolist()
            return h + carries["twice"]

    noted = Noted()
    (segment,) = cut_segments([(0, Writes()), (1, noted)])
    assert segment.ends_row_by_row
    h, select = torch.randn(5, 4), torch.tensor([0, 3])
    _, state = segment.run(None, State(h, {}), rows_of(5), select)
    assert noted.seen == [0, 3] and torch.equal(state.h, (h + 1 + 2 * h)[select])
