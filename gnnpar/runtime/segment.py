"""`Segment`: the row-wise work between two aggregations, differentiated on its own.

    after(layer a) → row-wise layers → before(layer b)

A segment's inputs are leaves (Z of layer a, the rows `h` and the carries), so each chunk has a small autograd
graph per segment, and gradients cross an aggregation only through `Aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from gnnpar.model.layer import Carries, Layer
from gnnpar.model.rows import Rows

__all__ = ["Segment", "State", "cut_segments"]

RowsOf = Callable[[int], Rows]
"""Makes the `Rows` of a layer, given its global index."""


@dataclass(slots=True)
class State:
    """The rows of one chunk between two segments: `h` `[n, H]` (None where unneeded) and the carries."""

    h: Tensor | None
    carries: Carries


@dataclass(frozen=True)
class Segment:
    """Row-wise parts between two aggregations; `Layer`s come with their global index.

    Attributes:
        behind: the layer whose aggregation precedes (None: the segment starts the stage).
        inner: row-wise layers.
        ahead: the layer whose aggregation follows (None: the segment ends the stage).
        keeps_h0: the encoder is among `inner`, and its output becomes the carry `h0`.
    """

    behind: tuple[int, Layer] | None
    inner: tuple[tuple[int, Layer], ...]
    ahead: tuple[int, Layer] | None
    keeps_h0: bool = False

    @property
    def keeps_input(self) -> bool:
        """True where the next segment looks at the `h` that this one ends with."""
        return self.ahead is None or self.ahead[1].reads_input

    @property
    def ends_row_by_row(self) -> bool:
        """True where the last inner layer looks at rows one by one: those without a label may be left out."""
        return bool(self.inner) and not self.inner[-1][1].chunk_dependent

    @property
    def index_behind(self) -> int:
        assert self.behind is not None
        return self.behind[0]

    def run(
        self, z: Tensor | None, state: State, rows_of: RowsOf, select: Tensor | None = None
    ) -> tuple[Tensor | None, State]:
        """Returns the cut of the layer ahead (None where there is none) and the new state.

        Args:
            z: `[n, K]` of the layer behind (None where there is none).
            select: rows to keep before the last inner layer: a decoder need not look at rows without a label.
        """
        h, carries = state.h, dict(state.carries)
        if self.behind is not None:
            index, layer = self.behind
            assert z is not None
            h = _after(layer, z, h, carries, rows_of(index))
        for index, layer in self.inner:
            assert h is not None
            rows = rows_of(index)
            if select is not None and index == self.inner[-1][0]:
                rows = replace(rows, ids=rows.ids[select])
                h = h[select]
                carries = {name: carries[name][select] for name in layer.reads}
            h = _after(layer, h, h, carries, rows)
            if index == 0 and self.keeps_h0:
                carries["h0"] = h
        if self.ahead is None:
            return None, State(h, carries)
        index, layer = self.ahead
        assert h is not None
        x = layer.before(h, carries, rows_of(index))
        return x, State(h if self.keeps_input else None, carries)


def _after(layer: Layer, z: Tensor, h: Tensor | None, carries: Carries, rows: Rows) -> Tensor:
    result = layer.after(z, z if h is None else h, carries, rows)
    if isinstance(result, tuple):
        result, written = result
        carries.update(written)
    return result


def cut_segments(layers: Sequence[tuple[int, Layer]], keeps_h0: bool = False) -> tuple[Segment, ...]:
    """Cut a stage's layers at its aggregations: one segment more than there are aggregations."""
    segments: list[Segment] = []
    behind: tuple[int, Layer] | None = None
    inner: list[tuple[int, Layer]] = []
    for entry in layers:
        if entry[1].operator is None:
            inner.append(entry)
            continue
        segments.append(Segment(behind, tuple(inner), entry, keeps_h0))
        behind, inner = entry, []
    segments.append(Segment(behind, tuple(inner), None, keeps_h0))
    return tuple(segments)
