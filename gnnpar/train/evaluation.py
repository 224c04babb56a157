"""Exact evaluation: layer by layer over all chunks, no history, the same layer code as training."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Context, Transport
from gnnpar.history import CutStore, Reads
from gnnpar.runtime import Aggregation, Executor, Payload, Stage
from gnnpar.train.metrics import score

__all__ = ["Evaluator", "Scores"]

_TAG = 1 << 24
"""Evaluation messages are tagged apart from those of training steps."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Metric on the three masks (NaN where a mask is empty), and the seconds that the evaluation took."""

    train: float
    val: float
    test: float
    seconds: float


class Evaluator:
    """Runs one rank's stage over the whole graph. Memory: two buffers `[N, K]`, payloads of all chunks."""

    def __init__(
        self,
        stage: Stage,
        executor: Executor,
        transport: Transport,
        chunked: ChunkedGraph,
        context: Context,
        metric: str,
    ) -> None:
        self.stage = stage
        self.executor = executor
        self.transport = transport
        self.chunked = chunked
        self.context = context
        self.metric = metric

    def run(self, reads: Reads) -> Scores:
        """Scores of the current parameters, the same on all ranks."""
        start = time.perf_counter()
        logits = self.logits(reads)
        scores = None
        if logits is not None:
            graph = self.chunked.graph
            scores = [
                score(logits, graph.y, mask, self.metric)
                for mask in (graph.train_mask, graph.val_mask, graph.test_mask)
            ]
        train, val, test = self.context.broadcast_object(
            scores, self.context.world_size - 1, "sharing the scores"
        )
        return Scores(train, val, test, time.perf_counter() - start)

    def logits(self, reads: Reads) -> Tensor | None:
        """Logits `[N, C]` in the renumbered order, on the last stage (None elsewhere)."""
        slot = reads.slots[0]
        rank, stage = self.context.rank, self.stage
        payloads: dict[Chunk, Payload] = {}
        if stage.receives:
            messages = {
                chunk: self.transport.receive(
                    self.executor.empty_payload(chunk, stage.receives),
                    rank - 1,
                    _TAG + number * 64,
                    f"evaluation, chunk {chunk.index}",
                )
                for number, chunk in enumerate(slot)
            }
            payloads = {chunk: self.transport.finish(message) for chunk, message in messages.items()}
        out = stage.evaluate(slot, payloads, reads, self._aggregations())
        if not stage.sends:
            return torch.cat([payload[0] for payload in out.values()])
        sent = [
            self.transport.send(
                payload, rank + 1, _TAG + number * 64, "evaluation", f"evaluation, chunk {chunk.index}"
            )
            for number, (chunk, payload) in enumerate(out.items())
        ]
        for message in sent:
            self.transport.finish(message)
        return None

    def _aggregations(self) -> list[Aggregation]:
        """The stage's aggregations over two cuts that they use in turn, so that the histories stay."""
        rows = self.chunked.graph.num_nodes
        by_width: defaultdict[tuple[int, ...], list[CutStore]] = defaultdict(
            lambda: [CutStore(rows, 1), CutStore(rows, 1)]
        )
        return [
            aggregation.over(by_width[aggregation.cut.tail][number % 2])
            for number, aggregation in enumerate(self.stage.aggregations)
        ]
