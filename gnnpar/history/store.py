"""`CutStore`: the aggregation inputs of all vertices at one layer, of this step and of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.errors import RunError
from gnnpar.graph import kernels
from gnnpar.history.mapped import MappedRows

__all__ = ["CutStore"]


class CutStore:
    """One layer's cut tensor for every vertex: a buffer of one or two copies of `[N, K]`, K being the product
    of the cut's shape per vertex.

    With one copy, a chunk that has not run yet in this step still shows its rows of the last step. With two,
    one copy is live and the other is the snapshot; closing a snapshot swaps their roles instead of copying,
    since every live row is written again before it is read.

    Memory: copies · N · K · bytes(dtype), from the first write on, which also settles K and the dtype. In a
    file (`mapped`), only the rows that are in use.

    Args:
        num_rows: N.
        first: the vertex of the first row, where not all vertices have one.
    """

    def __init__(self, num_rows: int, copies: int, mapped: MappedRows | None = None, first: int = 0) -> None:
        self.mapped = mapped
        self.first = first
        self.num_rows = num_rows
        self.copies = copies
        self.tail: tuple[int, ...] = ()
        self._buffer: Tensor | None = None

    def in_room(self, room: Tensor) -> CutStore | None:
        """A store of one copy of this cut in `room` `[N, K]`, which lies idle; None if it does not fit."""
        known = self._buffer is not None and self._buffer.dtype == room.dtype
        if not known or room.shape != (self.num_rows, math.prod(self.tail)):
            return None
        store = CutStore(self.num_rows, 1)
        store.tail, store._buffer = self.tail, room
        return store

    @property
    def buffer(self) -> Tensor:
        """`[copies · N, K]`. Raises `RunError` before the first write: unwritten history is not zero."""
        if self._buffer is None:
            raise RunError("a history is read before any chunk has written it")
        return self._buffer

    def rows(self, offset: int) -> Tensor:
        """`[N, K]`, in place: the copy at `offset`."""
        return self.buffer[offset : offset + self.num_rows]

    def write(self, start: int, x: Tensor, offset: int, scale: Tensor | None = None) -> None:
        """Store `x` `[n, *tail]` times `scale` `[n]` as vertices `start` onwards, in the copy at `offset`."""
        self.allocate(x)
        at = offset + start - self.first
        kernels.scale_rows(x.flatten(1), scale, self.buffer[at : at + x.shape[0]])

    def allocate(self, x: Tensor) -> None:
        """Make room for rows like those of `x` `[n, *tail]`, once (or anew, for rows of another shape)."""
        tail = tuple(x.shape[1:])
        if self._buffer is None or self.tail != tail:
            self.tail = tail
            rows, width = self.copies * self.num_rows, math.prod(self.tail)
            if self.mapped is not None:
                self._buffer = self.mapped.open(rows, width, x.dtype)
            else:
                self._buffer = x.new_empty(rows, width)

    def state(self) -> dict[str, Any]:
        """The buffer itself and the shape of a row; empty before the first write."""
        return {} if self._buffer is None else {"cut": self._buffer, "tail": self.tail}

    def load(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` gave."""
        if "cut" in state:
            self.allocate(state["cut"].new_empty(0, *state["tail"]))
            self.buffer.copy_(state["cut"])

    def release(self) -> None:
        """Nothing is read or written for a while: rows in a file need no memory until then."""
        if self.mapped is not None:
            self.mapped.release()

    def rows_of(self, chunk: Chunk) -> slice:
        """Where a chunk's rows are in one copy."""
        return slice(chunk.start - self.first, chunk.stop - self.first)

    def new_copy(self, num_rows: int | None = None) -> Tensor:
        """A tensor `[N, K]`, or of so many rows, of the same kind, unset."""
        rows = self.num_rows if num_rows is None else num_rows
        return self.buffer.new_empty(rows, self.buffer.shape[1])

    def shaped(self, rows: Tensor) -> Tensor:
        """`[n, K]` seen as `[n, *tail]`."""
        return rows.view(rows.shape[0], *self.tail)
