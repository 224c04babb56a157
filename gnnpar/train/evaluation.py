"""Exact evaluation: layer by layer over all chunks, no history, the same layer code as training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Mesh, Message
from gnnpar.history import CutStore, Reads
from gnnpar.model import Edge
from gnnpar.runtime import OUT, Aggregation, Executor, Payload, Payloads, Slot, Stage, pull_scales
from gnnpar.schedule import Schedule
from gnnpar.train.metrics import mean_loss, score

__all__ = ["Evaluator", "Scores"]

Pass = Callable[[Stage, Payloads, Sequence[Aggregation]], Payloads]
"""Runs a stage over aggregations whose cuts may be overwritten."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Metric on the three masks (NaN where a mask is empty), and the seconds that the evaluation took.

    Attributes:
        val_loss: loss per labelled validation vertex, NaN where there is none.
        metric: "accuracy" or "rocauc".
        history_error: relative error of the histories, where it was measured.
    """

    train: float
    val: float
    test: float
    val_loss: float
    seconds: float
    metric: str = "accuracy"
    history_error: float | None = None


class Evaluator:
    """Runs the whole graph through all stages, each on the first way of its column (of the first replica, if
    there are several): all ways hold the same parameters.

    Args:
        stages: of the first replica, by number, those that this process holds.

    Memory: the payloads of all chunks; cuts use buffers that are idle between steps, and only where there are
    none two buffers `[N, K]` of their own.
    """

    def __init__(
        self,
        schedule: Schedule,
        mesh: Mesh,
        executor: Executor,
        stages: Mapping[int, Stage],
        chunked: ChunkedGraph,
        context: Context,
        config: RunConfig,
    ) -> None:
        self.schedule = schedule
        self.mesh = mesh
        self.executor = executor
        self.stages = stages
        self.transport = executor.transport
        self.chunked = chunked
        self.context = context
        self.metric = config.train.metric
        self.ranks = [mesh.process_of(schedule.rank_of(stage)) for stage in range(schedule.num_stages)]
        dtype = getattr(torch, config.dtype)
        self.scales = {
            number: pull_scales([layer for _, layer in stage.layers], chunked.graph, dtype)
            for number, stage in stages.items()
        }

    def run(self, reads: Reads) -> Scores:
        """Scores of the current parameters, the same on all ranks. `reads`: exact, over the whole graph."""
        start = time.perf_counter()
        logits = self.logits(reads)
        scores = None
        if logits is not None:
            graph = self.chunked.graph
            scores = [
                score(logits, graph.y, mask, self.metric)
                for mask in (graph.train_mask, graph.val_mask, graph.test_mask)
            ]
            scores.append(mean_loss(logits, graph.y, graph.val_mask))
        scores = self.context.broadcast_object(scores, self.ranks[-1], "sharing the scores")
        train, val, test, val_loss = scores
        return Scores(train, val, test, val_loss, time.perf_counter() - start, self.metric)

    def history_error(self, reads: Reads, ran_in: Tensor, offset: int) -> float:
        """‖histories - X‖ ÷ ‖X‖ over all layers, X the exact cuts of the current parameters, given the
        dropout masks that each chunk had when it last ran: so nothing but age makes them differ. The same on
        all ranks. Of several ways, the chunks of each column's first count.

        Args:
            ran_in: `[C]`, the step in which each chunk last ran.
            offset: in the buffer, of the copy that the next step reads as history.
        """
        squares = torch.zeros(2, dtype=torch.float64)
        mesh, column = self.mesh, self.mesh.place_of(self.context.rank)[0]
        own = [c for c in reads.slots[0] if mesh.owner(column, c.index) == self.context.rank]

        def compare(stage: Stage, exact: Sequence[Aggregation], number: int) -> None:
            kept = stage.aggregations[number].cut.rows(offset)
            for chunk in own:
                x = exact[number].cut.rows(0)[chunk.start : chunk.stop].double()
                difference = kept[chunk.start : chunk.stop].double() - x
                squares.add_(torch.stack([difference.square().sum(), x.square().sum()]).cpu())
            stage.aggregations[number].cut.release()

        steps = ran_in.tolist()

        def revisit(stage: Stage, payloads: Payloads, aggregations: Sequence[Aggregation]) -> Payloads:
            seen = partial(compare, stage, aggregations)
            return stage.revisit(
                reads.slots[0], payloads, reads, aggregations, lambda chunk: int(steps[chunk.index]), seen
            )

        self.logits(reads, revisit)
        shares = self.context.gather_objects(squares.tolist(), "measuring the histories")
        wrong, exact = (sum(share[place] for share in shares) for place in (0, 1))
        return math.sqrt(wrong / exact) if exact else 0.0

    def logits(self, reads: Reads, run: Pass | None = None) -> Tensor | None:
        """Logits `[N, C]` in the renumbered order, on the rank of the last stage (None elsewhere).

        Args:
            run: what runs a stage; None: evaluation.
        """
        here, ranks, last = self.context.rank, self.ranks, len(self.ranks) - 1
        slot, stages = reads.slots[0], self.stages
        arriving: dict[Edge, dict[Chunk, Message]] = {}
        crossing: dict[Edge, dict[Chunk, Payload]] = {}
        sent: list[Message] = []
        # Every rank posts its messages in the order of the edges: so none waits for another in a circle.
        for number, rank in enumerate(ranks):
            if rank != here:
                to = [target for target in self.schedule.successors(number) if ranks[target] == here]
                arriving |= {(number, target): self._post((number, target), slot) for target in to}
                continue
            payloads: Payloads = {}
            for source in stages[number].receives:
                messages = arriving.pop((source, number), {})
                crossing |= {(source, number): self._finish(messages)} if messages else {}
                payloads[source] = crossing.pop((source, number))
            out = self._stage(number, payloads, reads, run)
            for target, payload in out.items():
                if target != OUT and ranks[target] != here:
                    sent += self._send((number, target), payload)
                else:
                    crossing[number, target] = payload
        for message in sent:
            self.transport.finish(message)
        if here != ranks[last]:
            return None
        return torch.cat([payload[0] for payload in crossing[last, OUT].values()])

    def _stage(self, number: int, payloads: Payloads, reads: Reads, run: Pass | None) -> Payloads:
        stage = self.stages[number]
        pairs = zip(stage.aggregations, self._cuts(stage.aggregations), self.scales[number], strict=True)
        aggregations = [one.over(cut, scales) for one, cut, scales in pairs]
        if run is not None:
            return run(stage, payloads, aggregations)
        return stage.evaluate(reads.slots[0], payloads, reads, aggregations)

    def _cuts(self, aggregations: Sequence[Aggregation]) -> list[CutStore]:
        """Where each aggregation's cut goes: not where its Z goes, nor the cut or the Z of the one before."""
        rows, count = self.chunked.graph.num_nodes, len(aggregations)
        spare = CutStore(rows, 1), CutStore(rows, 1)
        cuts = []
        for place, one in enumerate(aggregations):
            room = aggregations[(place + 1) % count].idle if count > 2 else None
            cuts.append((None if room is None else one.cut.in_room(room)) or spare[place % 2])
        return cuts

    def _post(self, edge: Edge, slot: Slot) -> dict[Chunk, Message]:
        source, target = edge
        peer, specs = self.ranks[source], self.stages[target].receives[source]
        return {
            chunk: self.transport.receive(
                self.executor.empty_payload(chunk.num_rows, specs),
                peer,
                self._tag(edge, place),
                f"evaluation, {chunk}",
            )
            for place, chunk in enumerate(slot)
        }

    def _finish(self, messages: dict[Chunk, Message]) -> dict[Chunk, Payload]:
        return {chunk: self.transport.finish(message) for chunk, message in messages.items()}

    def _send(self, edge: Edge, payloads: dict[Chunk, Payload]) -> list[Message]:
        peer = self.ranks[edge[1]]
        return [
            self.transport.send(payload, peer, self._tag(edge, place), "evaluation", f"evaluation, {chunk}")
            for place, (chunk, payload) in enumerate(payloads.items())
        ]

    def _tag(self, edge: Edge, place: int) -> int:
        """Apart from the tags of training steps."""
        return (1 << 27) + (self.schedule.stage_edges.index(edge) * (1 << 14) + place) * 64
