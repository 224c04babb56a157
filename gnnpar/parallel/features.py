"""`FeatureSlices`: a way sums over neighbours for some features of all rows, not for all features of some."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnpar.dist import Message
from gnnpar.graph import kernels
from gnnpar.history import Reads
from gnnpar.parallel.peers import Peers

__all__ = ["FeatureSlices", "slice_of"]

_TAG = 3 << 28
"""Apart from the tags of payloads, evaluation, gradients, histories and halos."""


def slice_of(width: int, way: int, ways: int) -> slice:
    """The columns of K = `width` that a way of `ways` sums: as many as the others or one less, maybe none."""
    return slice(width * way // ways, width * (way + 1) // ways)


class FeatureSlices:
    """Feature parallelism (NeutronTP, Ai et al. 2024; tensor parallelism of Megatron, Shoeybi et al. 2019).

    Dense algebra is done by rows: every way has n of the N rows, in full width. The sum over neighbours is
    done by columns: an all-to-all turns `[n, K]` into `[N, K / g]`, every way sums over the edges of the
    whole graph for its slice of the features, and an all-to-all turns the result back. Backward is the same
    over the transpose. No row is read by two ways, so nothing depends on the cut, the balance of the edges
    included. NeutronTP moreover decouples aggregation from the dense algebra, to have one such exchange a
    model instead of one a layer; that changes the model, so it is left to the model here.

    Bytes, of kind `feature`: 2 · (N · K - Σ_w n_w · K_w) elements a layer forward, and as many backward, n_w
    being the rows of way w and K_w its columns: 2 · N · K · (1 - 1 / g) with equal shares.

    Memory: x and out of `[N, K / g]` while a sum lasts.
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
        what = f"feature slices of {'the gradient of ' if back else ''}layer {layer}"
        tag = _TAG + (layer * 2 + back) * 2
        edges = reads.backward_edges if back else reads.forward_edges
        num_rows, columns = self.peers.rows[-1].stop, self._columns(x.shape[1])
        mine = columns[self.peers.way]
        sliced = x.new_empty(num_rows, mine.stop - mine.start)
        own = sliced[self.peers.own.start : self.peers.own.stop]
        own.copy_(x[:, mine])
        self._all_to_all(self._by_columns(x), self._by_rows(sliced), tag, what)
        total = torch.empty_like(sliced)
        if total.shape[1]:
            weight, self_rows = edges.weight, 0 if self_loops else None
            kernels.pull(
                edges.indptr, edges.indices, sliced, total, weight=weight, self_rows=self_rows, scale=scale
            )
        arrived = [out.new_empty(out.shape[0], one.stop - one.start) for one in columns]
        self._all_to_all(self._by_rows(total), arrived, tag + 1, what)
        arrived[self.peers.way] = total[self.peers.own.start : self.peers.own.stop]
        for one, part in zip(columns, arrived, strict=True):
            out[:, one] = part

    def _columns(self, width: int) -> list[slice]:
        """Of every way."""
        count = len(self.peers.rows)
        return [slice_of(width, way, count) for way in range(count)]

    def _by_columns(self, x: Tensor) -> list[Tensor]:
        return [x[:, one].contiguous() for one in self._columns(x.shape[1])]

    def _by_rows(self, sliced: Tensor) -> list[Tensor]:
        """Views."""
        return [sliced[rows.start : rows.stop] for rows in self.peers.rows]

    def _all_to_all(self, outgoing: Sequence[Tensor], buffers: Sequence[Tensor], tag: int, what: str) -> None:
        """One tensor to every way, and one from every way; empty ones are not sent."""
        peers = self.peers
        messages: list[Message] = []
        for way in peers.others:
            there, back = ([one] if one.numel() else [] for one in (outgoing[way], buffers[way]))
            process = peers.process_of(way)
            messages += peers.transport.swap(there, back, process, (tag, tag), "feature", what)
        for message in messages:
            peers.transport.finish(message)
