"""`Mesh`: which process is which way of which column of the pipeline, and which chunks are its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from gnnpar.config.schema import RunConfig

__all__ = ["Mesh"]


@dataclass(frozen=True)
class Mesh:
    """Columns of a pipeline, each shared by some ways.

    A schedule places stages on columns (it calls them ranks; elsewhere a rank is a process). All ways of a column follow its program, each
    over its own chunks of every slot, so groups may differ in size: a micro-batch is split over the ways and
    its parts meet again in the next column, whatever its size (DAPPLE, Fan et al. 2021, §3; PipeDream,
    Narayanan et al. 2019, §3.1, deals whole micro-batches round-robin instead). Processes are numbered column
    by column.

    Attributes:
        ways: g of every column.
        num_chunks: C, chunks of the graph, a multiple of every g; see `chunks_of`.
    """

    ways: tuple[int, ...]
    num_chunks: int

    @classmethod
    def of(cls, config: RunConfig) -> Mesh:
        """That of a configuration: each micro-batch is a slot of `slot_size` chunks, or of mini-batches.

        Replicas are further ways of every column: what reads nothing of each other needs no halo.
        """
        given, columns = config.parallel.ways, config.parallel.stages
        ways = (given,) * columns if isinstance(given, int) else given
        ways = tuple(count * config.parallel.replicas for count in ways)
        batch = config.batch
        return cls(ways, math.lcm(*ways) * (batch.per_step if batch.sampled else batch.num_chunks))

    @property
    def size(self) -> int:
        """Number of processes."""
        return sum(self.ways)

    @property
    def is_plain(self) -> bool:
        """True where every column is one process."""
        return max(self.ways) == 1

    @property
    def slot_size(self) -> int:
        """L, chunks of one slot: the fewest that every column can share out evenly."""
        return math.lcm(*self.ways)

    def process_of(self, column: int, way: int = 0) -> int:
        """The process that is this way of this column."""
        return self._first[column] + way

    def processes_of(self, column: int) -> range:
        """All processes of a column, by way."""
        return range(self._first[column], self._first[column + 1])

    def place_of(self, process: int) -> tuple[int, int]:
        """(column, way) of a process."""
        column = next(c for c in range(len(self.ways)) if process < self._first[c + 1])
        return column, process - self._first[column]

    def chunks_of(self, column: int, way: int) -> range:
        """Indices of the chunks that a way runs: w · C/g to (w+1) · C/g - 1, the same in every step.

        As the graph is cut into `slot_size` groups of consecutive chunks first, these have few edges to the
        other ways'.
        """
        width = self.num_chunks // self.ways[column]
        return range(way * width, (way + 1) * width)

    def owner(self, column: int, chunk: int) -> int:
        """The process of a column that runs the chunk of this index."""
        if self.ways[column] == 1:
            return self.process_of(column)
        return self.process_of(column, chunk // len(self.chunks_of(column, 0)))

    @cached_property
    def _first(self) -> tuple[int, ...]:
        return (0, *accumulate(self.ways))
