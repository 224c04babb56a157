"""Vertex chunks of one graph as micro-batches: contiguous row ranges, and their order in every step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gnnpar.errors import InputError
from gnnpar.graph import Graph
from gnnpar.graph.block import Block
from gnnpar.graph.norm import degrees
from gnnpar.partition import Partition, boundary_last

__all__ = ["Chunk", "ChunkedGraph", "chunk_order", "make_block", "slot_order"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows `start:stop` of the renumbered graph."""

    index: int
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"chunk {self.index}, rows {self.start} to {self.stop}"


@dataclass(frozen=True)
class ChunkedGraph:
    """A graph whose vertices are renumbered so that every chunk is a contiguous range of rows.

    Attributes:
        graph: renumbered; `graph.node_ids` are the original ids.
        offsets: C + 1 row offsets.
    """

    graph: Graph
    offsets: tuple[int, ...]

    @classmethod
    def build(cls, graph: Graph, partition: Partition, num_ways: int = 1) -> ChunkedGraph:
        """Renumber `graph` by `partition`. Raises `InputError` if the partition is of another graph.

        Args:
            num_ways: that share out the parts; see `boundary_last`.
        """
        if partition.graph_fingerprint != graph.fingerprint:
            raise InputError(
                "partition",
                [
                    f"made for graph {partition.graph_fingerprint}, but {graph.name} is {graph.fingerprint}; "
                    "partition this graph again"
                ],
            )
        order = partition.order if num_ways == 1 else boundary_last(graph, partition, num_ways)
        return cls(graph.permute(order), tuple(int(offset) for offset in partition.offsets))

    @property
    def num_chunks(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """The C chunks."""
        return tuple(Chunk(c, self.offsets[c], self.offsets[c + 1]) for c in range(self.num_chunks))

    @cached_property
    def whole(self) -> Chunk:
        """All rows as one chunk, for what must see them at once."""
        return Chunk(-1, 0, self.offsets[-1])

    def num_labels(self, chunks: Iterable[Chunk]) -> int:
        """Known labels of the training vertices in these chunks (multi-label: known entries)."""
        before = self._labels_before
        return int(sum(before[chunk.stop] - before[chunk.start] for chunk in chunks))

    @cached_property
    def _labels_before(self) -> Tensor:
        """`[N + 1]` on the CPU."""
        graph = self.graph
        known = (~graph.y.isnan()).sum(1) if graph.multi_label else graph.y >= 0
        before = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
        torch.cumsum((known * graph.train_mask).cpu(), 0, out=before[1:])
        return before

    @cached_property
    def isolated(self) -> ChunkedGraph:
        """The same chunks without the edges between them; degrees are counted on what is left."""
        graph = self.graph
        inside = self.chunk_of[graph.destinations] == self.chunk_of[graph.indices.long()]
        kept_before = graph.indptr.new_zeros(graph.num_edges + 1)
        torch.cumsum(inside, 0, out=kept_before[1:])
        kept = graph.replace(
            indptr=kept_before[graph.indptr],
            indices=graph.indices[inside],
            edge_weight=None if graph.edge_weight is None else graph.edge_weight[inside],
            edge_attr=None if graph.edge_attr is None else graph.edge_attr[inside],
        )
        return ChunkedGraph(kept, self.offsets)

    def to(self, dtype: torch.dtype, device: torch.device) -> ChunkedGraph:
        """The same graph on `device`, its real numbers in `dtype`."""
        return ChunkedGraph(self.graph.to_dtype(dtype).to(device), self.offsets)

    @cached_property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """In- and out-degree of every vertex, weighted where edges are."""
        return degrees(self.graph)

    @cached_property
    def chunk_of(self) -> Tensor:
        """`[N]` int32: the chunk of every vertex."""
        device = self.graph.indptr.device
        sizes = torch.tensor(self.offsets, device=device).diff()
        return torch.repeat_interleave(torch.arange(self.num_chunks, dtype=torch.int32, device=device), sizes)


def make_block(
    chunked: ChunkedGraph, chunk: Chunk, indptr: Tensor, indices: Tensor, edge: Tensor | None
) -> tuple[Block, Tensor]:
    """The block of a chunk's rows in the CSR `(indptr, indices)`, and the vertex of each column.

    Columns are the chunk's own rows, then its other sources in ascending order. `edge`: positions of the
    CSR's entries in the graph's own, where it is not the graph's own. Cost: O(edges of the chunk · log).
    """
    graph, (in_degree, out_degree) = chunked.graph, chunked.degrees
    start, stop = chunk.start, chunk.stop
    first, last = int(indptr[start]), int(indptr[stop])
    source = indices[first:last].long()
    own = (source >= start) & (source < stop)
    halo = torch.unique(source[~own])
    columns = torch.where(own, source - start, chunk.num_rows + torch.searchsorted(halo, source))
    vertices = torch.cat([torch.arange(start, stop, device=halo.device), halo])
    at = slice(first, last) if edge is None else edge[first:last]
    block = Block(
        num_rows=chunk.num_rows,
        indptr=indptr[start : stop + 1] - first,
        columns=columns,
        row_ids=graph.node_ids[start:stop],
        column_ids=graph.node_ids[vertices],
        in_degree=in_degree[vertices],
        out_degree=out_degree[vertices],
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[at],
        edge_attr=None if graph.edge_attr is None else graph.edge_attr[at],
    )
    return block, vertices


def chunk_order(num_chunks: int, seed: int, step: int, way: int = 0, shuffle: bool = True) -> tuple[int, ...]:
    """The chunks of a step in the order in which they run, the same on all stages.

    A pure function of (seed, step, way): a permutation drawn from a counter-based generator.
    """
    if not shuffle:
        return tuple(range(num_chunks))
    stream = np.random.Generator(np.random.Philox(key=[seed, (step << 16) + way]))
    return tuple(int(c) for c in stream.permutation(num_chunks))


def slot_order(
    num_slots: int, slot_size: int, seed: int, step: int, shuffle: bool = True, joined: int = 1
) -> tuple[int, ...]:
    """All chunks, slot after slot, where `slot_size` · `joined` chunks run together.

    With n = num_slots · joined, places p · joined to (p+1) · joined - 1 of every slot are taken by some of
    the chunks p · n to (p+1) · n - 1, in an order of their own: whoever has these places has the same rows in
    every step.
    """
    count = num_slots * joined
    orders = [chunk_order(count, seed, step, way, shuffle) for way in range(slot_size)]
    return tuple(
        place * count + chunk
        for first in range(0, count, joined)
        for place, order in enumerate(orders)
        for chunk in order[first : first + joined]
    )
