"""`Peers`: the ways of one column as one of them sees them, where each keeps rows of its own only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from gnnpar.batch import ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.history import Reads

__all__ = ["Peers", "Product"]


class Product(Protocol):
    """A sum over neighbours of which every way has, and gets, rows of its own: out = scale ⊙ A x."""

    def multiply(
        self,
        x: Tensor,
        out: Tensor,
        reads: Reads,
        layer: int,
        *,
        back: bool,
        scale: Tensor | None,
        self_loops: bool,
    ) -> None:
        """All ways call it together.

        Args:
            x, out: `[n, K]`, the rows of this way.
            reads: of a step with one slot.
            layer: keeps the messages of different layers apart.
            back: along the out-edges instead of the in-edges.
            scale: `[N]`.
        """


@dataclass(frozen=True)
class Peers:
    """Who the ways of a column are, and what they own.

    Attributes:
        chunked: the graph that is trained on.
        column, way: of this process.
    """

    chunked: ChunkedGraph
    mesh: Mesh
    column: int
    way: int
    transport: Transport

    @cached_property
    def rows(self) -> tuple[range, ...]:
        """Of every way, those of all its chunks, which follow each other."""
        offsets, count = self.chunked.offsets, self.mesh.ways[self.column]
        chunks = [self.mesh.chunks_of(self.column, way) for way in range(count)]
        return tuple(range(offsets[one.start], offsets[one.stop]) for one in chunks)

    @property
    def own(self) -> range:
        """Rows of this way."""
        return self.rows[self.way]

    @cached_property
    def others(self) -> tuple[int, ...]:
        """All ways but this one, in order."""
        return tuple(way for way in range(len(self.rows)) if way != self.way)

    def process_of(self, way: int) -> int:
        """The process that is this way."""
        return self.mesh.process_of(self.column, way)
