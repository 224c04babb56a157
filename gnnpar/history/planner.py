"""`ReadsPlanner`: which chunks a step runs, in which slots, and what they read of each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph, make_block
from gnnpar.graph.block import Block
from gnnpar.history.policy import HistoryPolicy
from gnnpar.history.reads import Reads

__all__ = ["ReadsPlanner"]


class ReadsPlanner:
    """Makes the `Reads` of every step. One a rank, shared by its layers.

    Args:
        chunked: the graph.
        policy: the history axis.
        copies: 1 or 2 copies of every cut. Two are needed where a snapshot outlives the step, and where
            recomputation must find again what it read.
        slot_size: chunks of each slot, next to each other in the order.
        streams: the replica that runs each slot, where chunks are dealt to several.
        chunk_dependent: the model looks at all rows of a slot at once, so an exact slot must be one chunk.
            Else it runs chunk by chunk between two aggregations, which is easier on caches and memory.

    Attributes:
        ran_in: `[C]`, the step whose parameters each chunk's latest rows were computed with.
    """

    def __init__(
        self,
        chunked: ChunkedGraph,
        policy: HistoryPolicy,
        copies: int,
        chunk_dependent: bool = False,
        slot_size: int = 1,
        streams: tuple[int, ...] = (),
    ) -> None:
        self.streams = streams
        self.slot_size = slot_size
        self.together = (chunked.whole,) if chunk_dependent else chunked.chunks
        self.chunked = chunked
        self.policy = policy
        self.copies = copies
        self.ran_in = torch.zeros(chunked.num_chunks, dtype=torch.int64)
        self._blocks: dict[Chunk, tuple[Block, Tensor]] = {}
        self._scratch: dict[int, Tensor] = {}

    @cached_property
    def transpose(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """CSR of the out-edges, and their weights; the graph's own arrays where it is symmetric."""
        graph = self.chunked.graph
        if graph.is_symmetric:
            return graph.indptr, graph.indices, graph.edge_weight
        indptr, destinations, edge = graph.transpose
        return indptr, destinations, None if graph.edge_weight is None else graph.edge_weight[edge]

    def scratch(self, replica: int) -> Tensor:
        """Room for one redirected copy of the columns; replicas run side by side."""
        if replica not in self._scratch:
            self._scratch[replica] = torch.empty_like(self.chunked.graph.indices)
        return self._scratch[replica]

    def plan(self, step: int, order: tuple[int, ...]) -> Reads:
        """What a step reads; asked for step after step.

        Args:
            order: the chunks that the step runs, slot after slot (an exact step runs all of them together).
        """
        chunks, width = self.chunked.chunks, self.slot_size
        exact = self.policy.is_exact(step) or len(chunks) <= width
        slots = (
            (self.together,)
            if exact
            else tuple(tuple(chunks[c] for c in order[at : at + width]) for at in range(0, len(order), width))
        )
        position = torch.full((len(chunks),), 0 if exact else len(slots), dtype=torch.int32)
        if not exact:
            position[list(order)] = torch.arange(len(order), dtype=torch.int32) // width
        streams = (0,) * len(slots) if exact or not self.streams else self.streams
        runs = torch.tensor((*streams, -1))[position.long()]
        late = (position[None, :] > position[:, None]) | (runs[None, :] != runs[:, None])
        late &= (runs >= 0)[:, None]
        num_reads = int(self._pair_counts[runs >= 0].sum())
        share = 0.0 if exact or self.policy.mode == "drop" else self._share(late, num_reads)
        age, age_max = self._ages(step, late) if share else (0.0, 0)
        self.ran_in[runs >= 0] = step
        device = self.chunked.chunk_of.device
        whole = Reads(
            self,
            slots,
            position.to(device),
            *self._offsets(step),
            age=age,
            history_share=share,
            kept=self.policy.keeps(step),
            streams=streams,
            age_max=age_max,
            num_reads=num_reads,
            step=step,
        )
        if not any(streams):
            return whole
        places = [position.masked_fill(runs != one, len(slots)) for one in range(max(streams) + 1)]
        views = (replace(whole, position=at.to(device), replica=one) for one, at in enumerate(places))
        return replace(whole, views=tuple(views))

    def history_offset(self, step: int) -> int:
        """In the buffer, of the copy that `step` is about to read as history."""
        return self._offsets(step)[1]

    def refresh(self, step: int) -> Reads:
        """All chunks as one slot, over the copies that `step` is about to read as history."""
        self.ran_in.fill_(step)
        stale = self.history_offset(step)
        return replace(self.exact, live=stale, stale=stale, kept=True, streams=(0,))

    @cached_property
    def exact(self) -> Reads:
        """All chunks as one slot over a cut with one copy: evaluation."""
        position = torch.zeros_like(self.chunked.chunk_of[: self.chunked.num_chunks])
        return Reads(self, (self.together,), position, 0, 0, 0, 0.0)

    def most_rows(self, num_chunks: int) -> int:
        """Rows of the largest so many chunks."""
        return sum(sorted(chunk.num_rows for chunk in self.chunked.chunks)[-num_chunks:])

    def block(self, chunk: Chunk) -> tuple[Block, Tensor]:
        """The block of all of a chunk's edges, and its columns' vertices. Made once."""
        graph = self.chunked.graph
        if chunk not in self._blocks:
            self._blocks[chunk] = make_block(self.chunked, chunk, graph.indptr, graph.indices, None)
        return self._blocks[chunk]

    def _offsets(self, step: int) -> tuple[int, int]:
        if self.copies == 1:
            return 0, 0
        rows = self.chunked.graph.num_nodes
        swaps = self.policy.num_snapshots_before(step) if self.policy.mode == "snapshot" else step
        return (rows, 0) if swaps % 2 else (0, rows)

    def _share(self, late: Tensor, num_reads: int) -> float:
        return float(self._pair_counts[late].sum()) / max(1, num_reads)

    def _ages(self, step: int, late: Tensor) -> tuple[float, int]:
        """Mean over the reads of rows that are `late`, and the largest."""
        if self.policy.mode == "snapshot":
            return float(self.policy.age(step)), self.policy.age(step)
        ages, reads = step - self.ran_in, (self._pair_counts * late).sum(0)
        return int((ages * reads).sum()) / int(reads.sum()), int(ages[reads > 0].max())

    @cached_property
    def _pair_counts(self) -> Tensor:
        """`[C, C]`: edges by (chunk of the row, chunk of the column)."""
        graph, count = self.chunked.graph, self.chunked.num_chunks
        chunk_of = self.chunked.chunk_of.long()
        pair = chunk_of[graph.destinations] * count + chunk_of[graph.indices.long()]
        return torch.bincount(pair, minlength=count * count).view(count, count).cpu()
