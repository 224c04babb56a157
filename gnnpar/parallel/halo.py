"""`Halo`: the ways of a stage read each other's current rows, by messages of exactly the rows needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Mesh, Message, Transport
from gnnpar.history import Reads
from gnnpar.parallel.reading import Reading, reading

__all__ = ["Coming", "Halo", "Route"]

_TAG = 1 << 29
"""Apart from the tags of payloads, evaluation, gradients and histories."""

What = Literal["cut", "aggregation gradient", "cut gradient"]


@dataclass(frozen=True)
class Route:
    """What goes between this way and another one of its stage for one slot.

    Attributes:
        mine: rows of this way's chunks of the slot that the peer reads, `[n]`.
        theirs: rows of the peer's chunks of the slot that this way reads, `[m]`.
    """

    peer: int
    mine: Tensor
    theirs: Tensor


@dataclass(frozen=True)
class Coming:
    """Rows of other ways on their way here.

    Attributes:
        rows: `[N, K]`, where they will be written.
        indices: of the rows that come, one tensor for every other way.
    """

    rows: Tensor
    indices: list[Tensor]
    arriving: Iterable[Tensor]

    def land(self) -> None:
        """Wait for them, and write them."""
        for index, part in zip(self.indices, self.arriving, strict=True):
            self.rows[index] = part


@dataclass(frozen=True)
class _Awaited:
    """Tensors that are there once the messages are finished."""

    buffers: list[Tensor]
    messages: list[Message]
    transport: Transport

    def __iter__(self) -> Iterator[Tensor]:
        for message in self.messages:
            self.transport.finish(message)
        return iter(self.buffers)


class Halo:
    """The exchange of one process with the other ways of its column, for all its stages and layers.

    Every way has room for the rows of all vertices. What it lacks comes from the way that owns it when the
    slot has got so far, and before any chunk of the slot reads (GNNPipe, Chen et al. 2023, §4: hybrid
    parallelism). All ways know the graph, and work out for themselves which rows a message holds: numbers of
    rows follow from the order of the chunks, nothing is negotiated.

    * **cut** (forward): the rows of a chunk that the other ways read in this step, that is from chunks that
      run no earlier; all rows that they ever read, where a later step takes rows of this one as history.
    * **aggregation gradient** (backward of fixed linear operators, by rows): the rows of D that chunks which
      run no later need for their ∂X.
    * **cut gradient** (backward of all other operators, by columns): what a way has added up for columns that
      another one owns, when their chunk's turn has come.

    Compensation keeps D of a step for later ones, so all rows of D that others ever read are sent.

    Bytes, of kind `halo`: each row counted once a layer for each way that needs it, times K elements. With
    one chunk a way these are the mirrors R of a vertex cut, and 2 · L · R · K elements a step.

    Args:
        chunked: the graph that is trained on.
        column: of this process.
        way: of this process.
    """

    def __init__(
        self, chunked: ChunkedGraph, mesh: Mesh, column: int, way: int, transport: Transport
    ) -> None:
        self.chunked = chunked
        self.mesh = mesh
        self.column = column
        self.way = way
        self.transport = transport
        self._reads: Reads | None = None
        self._routes: dict[tuple[int, What], list[Route]] = {}
        self._inner_rows: dict[tuple[Chunk, What], int] = {}

    def spread(
        self, rows: Tensor, slot: Sequence[Chunk], reads: Reads, layer: int, what: What
    ) -> list[Tensor]:
        """Send the rows of `slot` (this way's chunks of it) to the ways that read them, and receive theirs.

        Args:
            rows: `[N, K]`; received rows are written into it.
            layer: keeps the messages of different layers apart.

        Returns the indices of the rows received.
        """
        coming = self.begin(rows, slot, reads, layer, what)
        coming.land()
        return coming.indices

    def begin(self, rows: Tensor, slot: Sequence[Chunk], reads: Reads, layer: int, what: What) -> Coming:
        """As `spread`, but rows are received and written when `Coming.land` is called: until then, rows that
        need none of them can be summed (`inner`)."""
        routes = self.routes(slot, reads, what)
        taken = [rows[route.mine] for route in routes]
        indices = [route.theirs for route in routes]
        return Coming(rows, indices, self._exchange(routes, taken, indices, slot, reads, layer, what))

    def inner(self, chunk: Chunk, what: What) -> int:
        """How many of the chunk's first rows have all their neighbours on this way: in-neighbours for the
        cut, out-neighbours for the aggregation gradient. `boundary_last` puts such rows first."""
        key = chunk, what
        if key not in self._inner_rows:
            self._inner_rows[key] = self._count_inner(chunk, what)
        return self._inner_rows[key]

    def _count_inner(self, chunk: Chunk, what: What) -> int:
        graph, own = self.chunked.graph, self._chunks_of[self.way]
        back = what == "aggregation gradient" and not graph.is_symmetric
        indptr, indices = graph.transpose[:2] if back else (graph.indptr, graph.indices)
        first, last = int(indptr[chunk.start]), int(indptr[chunk.stop])
        chunk_of = self.chunked.chunk_of[indices[first:last].long()]
        foreign = torch.nonzero((chunk_of < own.start) | (chunk_of >= own.stop))
        if not foreign.numel():
            return chunk.num_rows
        ends = indptr[chunk.start + 1 : chunk.stop + 1]
        return int(torch.searchsorted(ends, first + int(foreign[0]), right=True))

    def collect(self, rows: Tensor, slot: Sequence[Chunk], reads: Reads, layer: int, what: What) -> None:
        """The other way round: send what was added up for the others' chunks of the slot, which is then zero
        here, and add what they have for `slot`, in the order of the ways."""
        routes = self.routes(slot, reads, what)
        taken = [rows[route.theirs] for route in routes]
        for route in routes:
            rows[route.theirs] = 0.0
        arrived = self._exchange(routes, taken, [route.mine for route in routes], slot, reads, layer, what)
        for route, part in zip(routes, arrived, strict=True):
            rows.index_add_(0, route.mine, part)

    def settle(self) -> None:
        """Wait for what may still be on its way when a step is over; nothing here."""

    def _exchange(
        self,
        routes: Sequence[Route],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        slot: Sequence[Chunk],
        reads: Reads,
        layer: int,
        what: What,
    ) -> Iterable[Tensor]:
        """Start the exchange: `outgoing` `[n, K]` goes there, rows `incoming` `[m]` come back. Returns what
        the others send, by route, which is waited for when it is looked at."""
        transport, number = self.transport, _number(slot, reads)
        tag = _TAG + (layer * 2 + (what != "cut")) * len(reads.slots) + number
        buffers: list[Tensor] = []
        messages: list[Message] = []
        for route, out, index in zip(routes, outgoing, incoming, strict=True):
            text = f"{what} of layer {layer}, slot {number}"
            buffers.append(out.new_empty(index.numel(), out.shape[1]))
            mine, theirs = [out] if out.shape[0] else [], buffers[-1:] if index.numel() else []
            messages += transport.swap(mine, theirs, route.peer, (tag, tag), "halo", text)
        return _Awaited(buffers, messages, transport)

    def routes(self, slot: Sequence[Chunk], reads: Reads, what: What) -> list[Route]:
        """To every other way, in their order, for the slot of these chunks; all layers share them."""
        if reads is not self._reads:
            self._reads, self._routes = reads, {}
        key = _number(slot, reads), what
        if key not in self._routes:
            others = [way for way in range(len(self._chunks_of)) if way != self.way]
            self._routes[key] = [self._route(way, key[0], reads, what) for way in others]
        return self._routes[key]

    def _route(self, way: int, number: int, reads: Reads, what: What) -> Route:
        slot = reads.slots[number]
        rows = [
            self._needed([c for c in slot if c.index in self._chunks_of[owner]], reader, reads, what)
            for owner, reader in ((self.way, way), (way, self.way))
        ]
        return Route(self.mesh.process_of(self.column, way), *rows)

    def _needed(self, chunks: Sequence[Chunk], reader: int, reads: Reads, what: What) -> Tensor:
        """Rows of `chunks`, all of one slot, that the way `reader` needs (or has gradients for)."""
        lists = self._backward if what == "aggregation gradient" else self._forward
        of_reader = self._chunks_of[reader]
        there = reads.position[of_reader.start : of_reader.stop]
        parts = [there.new_empty(0, dtype=torch.int64)]
        for chunk in chunks:
            found, here = lists.get((chunk.index, reader)), reads.position[chunk.index]
            if found is not None:
                parts.append(found.read_by(_wanted(there, here, reads, what)))
        return torch.cat(parts)

    @cached_property
    def _chunks_of(self) -> list[range]:
        """Of every way of the column."""
        return [self.mesh.chunks_of(self.column, way) for way in range(self.mesh.ways[self.column])]

    @cached_property
    def _forward(self) -> dict[tuple[int, int], Reading]:
        graph = self.chunked.graph
        return reading(self.chunked, graph.indices, graph.destinations, self.way, self._chunks_of)

    @cached_property
    def _backward(self) -> dict[tuple[int, int], Reading]:
        graph = self.chunked.graph
        if graph.is_symmetric:
            return self._forward
        return reading(self.chunked, graph.destinations, graph.indices, self.way, self._chunks_of)


def _wanted(there: Tensor, here: Tensor, reads: Reads, what: What) -> Tensor:
    """Which readers at positions `there` need rows of a chunk at position `here`."""
    policy = reads.planner.policy
    runs = there < len(reads.slots)
    if what == "cut":
        return torch.ones_like(runs) if reads.kept else runs & (there >= here)
    if policy.compensate:  # of chunks outside the step, and for their sake
        return torch.ones_like(runs) if what == "aggregation gradient" else there >= here
    if policy.gamma == 0.0 and not reads.exact:
        return there == here
    return there <= here if what == "aggregation gradient" else runs & (there >= here)


def _number(slot: Sequence[Chunk], reads: Reads) -> int:
    """The place of a slot in the step, given some of its chunks."""
    return int(reads.position[slot[0].index])
