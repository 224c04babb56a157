"""`PartByPart`: rows of other ways are fetched when they are read, one way at a time, and thrown away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gnnpar.dist import Message
from gnnpar.graph import kernels
from gnnpar.history import Reads
from gnnpar.parallel.peers import Peers

__all__ = ["Part", "PartByPart", "part_of"]

_TAG = 7 << 27
"""Apart from the tags of payloads, evaluation, gradients, histories, halos and feature slices."""


@dataclass(frozen=True)
class Part:
    """Edges from rows of one way to rows of another.

    Attributes:
        rows: `[m]` ascending: the distinct sources, counted from the first row of their way.
        indptr, indices: `[n + 1]` int64, `[E']` int32: CSR of the n readers, into `rows`.
        weight: `[E']`, or None.
    """

    rows: Tensor
    indptr: Tensor
    indices: Tensor
    weight: Tensor | None


def part_of(edges: tuple[Tensor, Tensor, Tensor | None], readers: range, sources: range) -> Part:
    """The part of a CSR (`indptr`, `indices`, weight) whose rows are `readers` and whose columns `sources`.

    Cost: O(edges of the readers · log).
    """
    indptr, indices, weight = edges
    first, last = int(indptr[readers.start]), int(indptr[readers.stop])
    source = indices[first:last]
    wanted = (source >= sources.start) & (source < sources.stop)
    before = indptr.new_zeros(last - first + 1)
    torch.cumsum(wanted, 0, out=before[1:])
    rows = torch.unique(source[wanted]).long()
    return Part(
        rows - sources.start,
        before[indptr[readers.start : readers.stop + 1] - first],
        torch.searchsorted(rows, source[wanted].long()).to(torch.int32),
        None if weight is None else weight[first:last][wanted],
    )


class PartByPart:
    """Sequential aggregation and rematerialisation (SAR, Mostafa, MLSys 2022, §3).

    A way keeps rows of its own only. A sum over neighbours goes over the ways, one at a time: fetch the rows
    that are read here (while the part before is summed), add them up, forget them. Ways meet in pairs, so
    that each has one partner at a time. Gradients of fixed linear operators are sums over the transpose, and
    go the same way, which needs no rows of the forward pass (SAR's case 1). All other operators see their
    columns at once (`fetch`), where SAR splits the softmax of attention over the parts; what they read is
    thrown away, too, and fetched again where the stage recomputes (case 2).

    Bytes, of kind `halo`: as for `Halo`, with the fetches of recomputation counted again.

    Memory: two parts of `[m, K]` while a sum lasts, or all of them for `fetch`; the edges of the way's rows.
    """

    def __init__(self, peers: Peers) -> None:
        self.peers = peers

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
        """See `Product`."""
        count, way, own = len(self.peers.rows), self.peers.way, self.peers.own
        tag, what = _TAG + layer * 4 + back, f"{'gradients' if back else 'rows'} of layer {layer}"
        scale = None if scale is None else scale[own.start : own.stop]
        partners = [(number - way) % count for number in range(count)]
        coming = self._start(x, partners[0], back, tag, what)
        for number, partner in enumerate(partners):
            messages, rows = coming
            for message in messages:
                self.peers.transport.finish(message)
            if number + 1 < count:
                coming = self._start(x, partners[number + 1], back, tag, what)
            part = self._part(partner, back)
            kernels.pull(
                part.indptr,
                part.indices,
                rows,
                out,
                weight=part.weight,
                self_rows=0 if self_loops and partner == way else None,
                scale=scale,
                residual=out if number else None,
                b=1.0,
            )

    def _start(
        self, x: Tensor, partner: int, back: bool, tag: int, what: str
    ) -> tuple[tuple[Message, ...], Tensor]:
        """Messages to wait for, and where the rows of the partner will be then."""
        if partner == self.peers.way:
            return (), x
        return self._swap(x[self._mine(partner, back)], self._part(partner, back).rows, partner, tag, what)

    def _swap(
        self, taken: Tensor, rows: Tensor, partner: int, tag: int, what: str
    ) -> tuple[tuple[Message, ...], Tensor]:
        """Send `taken`, and receive as many rows as `rows` says."""
        buffer = taken.new_empty(rows.numel(), taken.shape[1])
        there, back = ([one] if one.shape[0] else [] for one in (taken, buffer))
        process = self.peers.process_of(partner)
        return self.peers.transport.swap(there, back, process, (tag, tag), "halo", what), buffer

    @cached_property
    def far(self) -> Tensor:
        """`[h]` ascending: the vertices of other ways that rows of this one read."""
        parts = [self._part(way, False).rows + self.peers.rows[way].start for way in self.peers.others]
        return torch.cat(parts)

    def fetch(self, x: Tensor, layer: int) -> Tensor:
        """`[h, K]`: the rows of `far`, of which every way has its own in `x` `[n, K]`. All ways call it."""
        tag, what = _TAG + layer * 4 + 2, f"rows of layer {layer}"
        swaps = [
            self._swap(x[self._mine(way, False)], self._part(way, False).rows, way, tag, what)
            for way in self.peers.others
        ]
        for message in (message for messages, _ in swaps for message in messages):
            self.peers.transport.finish(message)
        return torch.cat([buffer for _, buffer in swaps])

    def give_back(self, gradient: Tensor, own: Tensor, layer: int) -> None:
        """Send the gradients `[h, K]` of `far` to whom these rows belong; add theirs to `own` `[n, K]`, in
        the order of the ways."""
        tag, what = _TAG + layer * 4 + 3, f"gradients of layer {layer}"
        sizes = [self._part(way, False).rows.numel() for way in self.peers.others]
        mine = [self._mine(way, False) for way in self.peers.others]
        swaps = [
            self._swap(part, rows, way, tag, what)
            for part, rows, way in zip(torch.split(gradient, sizes), mine, self.peers.others, strict=True)
        ]
        for (messages, buffer), rows in zip(swaps, mine, strict=True):
            for message in messages:
                self.peers.transport.finish(message)
            own.index_add_(0, rows, buffer)

    def _part(self, way: int, back: bool) -> Part:
        """What rows of this way read of another."""
        return self._parts[way, back and not self.peers.chunked.graph.is_symmetric]

    def _mine(self, way: int, back: bool) -> Tensor:
        """Rows of this way, counted from its first, that another one reads."""
        return self._read_by[way, back and not self.peers.chunked.graph.is_symmetric]

    @cached_property
    def _edges(self) -> dict[bool, tuple[Tensor, Tensor, Tensor | None]]:
        """By direction; of a symmetric graph one serves both."""
        graph = self.peers.chunked.graph
        found = {False: (graph.indptr, graph.indices, graph.edge_weight)}
        if not graph.is_symmetric:
            indptr, indices, edge = graph.transpose
            found[True] = indptr, indices, None if graph.edge_weight is None else graph.edge_weight[edge]
        return found

    @cached_property
    def _parts(self) -> dict[tuple[int, bool], Part]:
        own, rows = self.peers.own, self.peers.rows
        found = {
            (way, back): part_of(edges, own, rows[way])
            for way in range(len(rows))
            for back, edges in self._edges.items()
        }
        for back in self._edges:  # of its own rows a way reads those that it needs in place
            inner = found[self.peers.way, back]
            columns = inner.rows.to(torch.int32)[inner.indices.long()]
            found[self.peers.way, back] = replace(inner, rows=torch.arange(len(own)), indices=columns)
        return found

    @cached_property
    def _read_by(self) -> dict[tuple[int, bool], Tensor]:
        own, rows = self.peers.own, self.peers.rows
        return {
            (way, back): part_of(edges, rows[way], own).rows
            for way in self.peers.others
            for back, edges in self._edges.items()
        }
