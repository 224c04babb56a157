"""`HistoryExchange`: keeps the copies of a stage's histories equal, where replicas run different chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.dist import Mesh, Message, Transport
from gnnpar.history import CutStore, Reads
from gnnpar.model.trace import TensorSpec
from gnnpar.runtime.reduce import holders
from gnnpar.runtime.stage import Stage
from gnnpar.schedule import Schedule

__all__ = ["HistoryExchange"]

_TAG = 3 << 27
"""Apart from the tags of payloads, of evaluation and of gradients."""


class HistoryExchange:
    """At the end of a step, every holder of a stage sends the rows that it wrote to the other holders.

    So all copies of a cut agree when the next step begins. Bytes (kind `history`): those of N · K elements a
    layer and other holder, in each step whose rows a later one reads.

    Args:
        stages: of this process, by (replica, stage).
        cuts: shape and type of every layer's cut, by global index: a copy may receive rows before it has
            written any.
    """

    def __init__(
        self,
        stages: Mapping[tuple[int, int], Stage],
        cuts: Mapping[int, TensorSpec],
        transport: Transport,
        device: torch.device,
    ) -> None:
        self.transport = transport
        self.stores = {key: tuple(_stores(stage)) for key, stage in stages.items()}
        for layer, store in (pair for pairs in self.stores.values() for pair in pairs):
            spec = cuts[layer]
            store.allocate(torch.empty(0, *spec.tail, dtype=spec.dtype, device=device))

    def run(self, schedule: Schedule, mesh: Mesh, reads: Reads) -> None:
        """Send what this process wrote in the step of `reads`, and wait for what the others did."""
        messages: list[Message] = []
        for (replica, number), stores in self.stores.items():
            for other, peer in holders(schedule, mesh, number):
                if other == replica:
                    continue
                for layer, store in stores:
                    mine, theirs = reads.ran(replica), reads.ran(other)
                    if peer == self.transport.context.rank:
                        for chunk in theirs:
                            _rows(store, chunk, reads).copy_(
                                _rows(dict(self.stores[other, number])[layer], chunk, reads)
                            )
                        continue
                    ends = (replica, other), (other, replica)
                    there, back = (_tag(schedule, reads, layer, *pair) for pair in ends)
                    what = f"histories of layer {layer} with replica {other}"
                    outgoing, incoming = (
                        [_rows(store, chunk, reads) for chunk in ran] for ran in (mine, theirs)
                    )
                    messages += self.transport.swap(outgoing, incoming, peer, (there, back), "history", what)
        for message in messages:
            self.transport.finish(message)


def _stores(stage: Stage) -> Iterator[tuple[int, CutStore]]:
    """(global index of the layer, its cut)."""
    for index, aggregation in stage.aggregating():
        yield index, aggregation.cut


def _rows(store: CutStore, chunk: Chunk, reads: Reads) -> Tensor:
    """The live rows of a chunk, in place."""
    return store.buffer[reads.live + chunk.start : reads.live + chunk.stop]


def _tag(schedule: Schedule, reads: Reads, layer: int, sender: int, receiver: int) -> int:
    """The first of as many tags as there may be chunks."""
    count = schedule.num_replicas
    return _TAG + ((layer * count + sender) * count + receiver) * reads.planner.chunked.num_chunks
