"""`Segment`: the row-wise work between two aggregations, differentiated on its own.

    after(layer a) → row-wise layers → before(layer b)

A segment's inputs are leaves (Z of layer a, the rows `h` and the carries), so each chunk has a small autograd
graph per segment, and gradients cross an aggregation only through `Aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

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
        keeps: global index of a layer → name of the carry that its output becomes.
    """

    behind: tuple[int, Layer] | None
    inner: tuple[tuple[int, Layer], ...]
    ahead: tuple[int, Layer] | None
    keeps: Mapping[int, str] = field(default_factory=dict)

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
            h = self._after(index, layer, z, h, carries, rows_of(index))
        for index, layer in self.inner:
            rows = rows_of(index)
            if select is not None and index == self.inner[-1][0]:
                rows = replace(rows, ids=rows.ids[select])
                h = None if h is None else h[select]
                carries = {name: carries[name][select] for name in layer.reads}
            h = self._after(index, layer, h, h, carries, rows)
        if self.ahead is None:
            return None, _outlasting(z, State(h, carries), state)
        index, layer = self.ahead
        assert h is not None
        x = layer.before(h, carries, rows_of(index))
        return x, _outlasting(z, State(h if self.keeps_input else None, carries), state)

    def _after(
        self, index: int, layer: Layer, z: Tensor | None, h: Tensor | None, carries: Carries, rows: Rows
    ) -> Tensor:
        # Only a layer that does not take h finds none.
        result = layer.after(cast(Tensor, z), cast(Tensor, z if h is None else h), carries, rows)
        if isinstance(result, tuple):
            result, written = result
            carries.update(written)
        if index in self.keeps:
            carries[self.keeps[index]] = result
        return result


def _outlasting(z: Tensor | None, left: State, entered: State) -> State:
    """What a segment leaves, copied where it is Z itself: that buffer takes other rows before all is done."""
    if z is None:
        return left
    buffer = z.untyped_storage().data_ptr()

    def apart(tensor: Tensor) -> Tensor:
        return tensor.clone() if tensor.untyped_storage().data_ptr() == buffer else tensor

    carries = {
        name: tensor if tensor is entered.carries.get(name) else apart(tensor)
        for name, tensor in left.carries.items()
    }
    return State(None if left.h is None else apart(left.h), carries)


def cut_segments(
    layers: Sequence[tuple[int, Layer]], keeps: Mapping[int, str] | None = None
) -> tuple[Segment, ...]:
    """Cut a stage's layers at its aggregations: one segment more than there are aggregations."""
    keeps = keeps or {}
    segments: list[Segment] = []
    behind: tuple[int, Layer] | None = None
    inner: list[tuple[int, Layer]] = []
    for entry in layers:
        if entry[1].operator is None:
            inner.append(entry)
            continue
        segments.append(Segment(behind, tuple(inner), entry, keeps))
        behind, inner = entry, []
    segments.append(Segment(behind, tuple(inner), None, keeps))
    return tuple(segments)
