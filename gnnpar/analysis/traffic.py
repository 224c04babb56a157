"""Bytes that one step sends, by kind and by link, without sending any.

The plans that a run follows (`ChunkFeed`, `Schedule`, `Mesh`, `Halo`) are asked what they would send, so the
numbers are those that training reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations
from typing import Any, cast

import torch

from gnnpar.batch import Chunk
from gnnpar.history import Reads
from gnnpar.model import Layer, Model, Pull
from gnnpar.model.norm import BatchNorm
from gnnpar.parallel import Halo
from gnnpar.schedule import Schedule, owners, whole
from gnnpar.schedule.reductions import reduced
from gnnpar.train.feed import ChunkFeed

__all__ = ["Flow", "epoch_traffic", "step_traffic"]

_MOMENT_BYTES = 8
"""What batch norms saw travels in float64."""


@dataclass(frozen=True, order=True)
class Flow:
    """Bytes of one kind from one process to another, in a step or an epoch."""

    kind: str
    source: int
    target: int
    bytes: int


def epoch_traffic(model: Model, split: Sequence[int], feed: ChunkFeed, epoch: int) -> list[Flow]:
    """What all processes send in an epoch, from 0: in all its steps. Arguments as for `step_traffic`."""
    policy = feed.policy
    late = max(epoch - policy.warmup_steps, 0)
    step = min(epoch, policy.warmup_steps) + late * policy.steps_per_epoch
    flows = step_traffic(model, split, feed, step)
    while not feed.ends_epoch(step):
        step += 1
        flows += step_traffic(model, split, feed, step)
    return _summed(((flow.kind, flow.source, flow.target), flow.bytes) for flow in flows)


def step_traffic(model: Model, split: Sequence[int], feed: ChunkFeed, step: int) -> list[Flow]:
    """What all processes send in a step, and in a refresh of histories that comes before it.

    Messages of kind `control` are left out.

    Args:
        model: of the run, in the type of the run.
        split: how many of `model.all_layers()` each stage has.
        feed: what the run trains on.
        step: its order of chunks decides what halos hold, and who sends them.
    """
    refresh, reads = feed.refresh(step), feed.reads(step)
    schedule = whole(feed.schedule) if reads.exact else feed.schedule
    runs = [_Step(model, split, feed, schedule, reads)]
    if refresh is not None:
        schedule = whole(feed.schedule, backward=False)
        runs.append(_Step(model, split, feed, schedule, refresh, only_forward=True))
    return _summed(
        ((kind, source, target), count)
        for run in runs
        for kind, flows in run.by_kind().items()
        for source, target, count in flows
        if source != target
    )


def _summed(counts: Iterable[tuple[tuple[str, int, int], int]]) -> list[Flow]:
    total: defaultdict[tuple[str, int, int], int] = defaultdict(int)
    for key, count in counts:
        total[key] += count
    return sorted(Flow(*key, count) for key, count in total.items() if count)


_Sent = Iterator[tuple[int, int, int]]
"""(process, process, bytes)."""


@dataclass(frozen=True)
class _Step:
    model: Model
    split: Sequence[int]
    feed: ChunkFeed
    schedule: Schedule
    reads: Reads
    only_forward: bool = False

    def by_kind(self) -> dict[str, _Sent]:
        return {
            "stage": self.stages(),
            "weight": self.weights(),
            "halo": self.halos(),
            "history": self.histories(),
        }

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return int(getattr(torch, self.feed.config.dtype).itemsize)

    def layers(self, stage: int) -> Mapping[int, Layer]:
        """Those of a stage, by global index."""
        bounds = [0, *accumulate(self.split)]
        every = self.model.all_layers()
        return {index: every[index] for index in range(bounds[stage], bounds[stage + 1])}

    def cut_widths(self, stage: int) -> Iterator[tuple[Layer, int]]:
        """Layers of a stage that aggregate, each with the numbers in a row of its cut."""
        specs = self.model.cut_specs(self.feed.chunked.graph)
        for index, layer in self.layers(stage).items():
            if index in specs:
                yield layer, int(torch.Size(specs[index].tail).numel())

    def stages(self) -> _Sent:
        """Payloads: every tensor forward, those with a gradient back, chunk by chunk."""
        mesh, schedule = self.feed.mesh, self.schedule
        payloads = self.model.payloads(self.feed.chunked.graph, self.split, schedule.stage_edges)
        runs = owners(schedule)
        for number, slot in enumerate(self.reads.slots):
            replica = runs[number]
            for (source, target), specs in payloads.items():
                columns = schedule.rank_of(source, replica), schedule.rank_of(target, replica)
                if columns[0] == columns[1]:  # handed over, whoever runs it
                    continue
                there = sum(torch.Size(spec.tail).numel() for spec in specs)
                back = sum(torch.Size(spec.tail).numel() for spec in specs if spec.needs_grad)
                for chunk in slot:
                    ends = [mesh.owner(column, chunk.index) for column in columns]
                    yield ends[0], ends[1], chunk.num_rows * there * self.size
                    if not self.only_forward:
                        yield ends[1], ends[0], chunk.num_rows * back * self.size

    def weights(self) -> _Sent:
        """Gradients of a stage, from every holder to every other one."""
        for stage in sorted({stage for _, stage in reduced(self.schedule)}):
            layers = self.layers(stage).values()
            trained = {id(p): p.numel() for layer in layers for p in layer.parameters() if p.requires_grad}
            norms = [one for layer in layers for one in layer.modules() if isinstance(one, BatchNorm)]
            moments = sum(1 + 2 * norm.width for norm in norms) * _MOMENT_BYTES
            count = sum(trained.values()) * self.size + moments
            holders = [
                process
                for replica in range(self.schedule.num_replicas)
                for process in self.feed.mesh.processes_of(self.schedule.rank_of(stage, replica))
            ]
            for source, target in permutations(holders, 2):
                yield source, target, count

    def halos(self) -> _Sent:
        """Rows that ways of a stage read of each other: as `Halo` lists them."""
        mesh = self.feed.mesh
        if self.feed.config.batch.kind != "chunks":
            return
        for column, ways in enumerate(mesh.ways):
            held = {stage for _, stage in self.schedule.stages_on(column)}
            cuts = [pair for stage in sorted(held) for pair in self.cut_widths(stage)]
            for way in range(ways if ways > 1 else 0):
                halo = Halo(self.feed.trained, mesh, column, way, cast(Any, None))
                here = mesh.process_of(column, way)
                for slot in self.reads.slots:
                    own = [chunk for chunk in slot if mesh.owner(column, chunk.index) == here]
                    for peer, columns in self._of_slot(halo, own, cuts):
                        yield here, peer, columns * self.size

    def _of_slot(
        self, halo: Halo, slot: Sequence[Chunk], cuts: Sequence[tuple[Layer, int]]
    ) -> Iterator[tuple[int, int]]:
        """(peer, numbers sent to it) of one way for one slot over all layers, forward and backward."""
        pulled = sum(width for layer, width in cuts if isinstance(layer.operator, Pull))
        pushed = sum(width for layer, width in cuts if not isinstance(layer.operator, Pull))
        for route in halo.routes(slot, self.reads, "cut"):
            yield route.peer, route.mine.numel() * (pulled + pushed)
        if self.only_forward:
            return
        if pulled:
            for route in halo.routes(slot, self.reads, "aggregation gradient"):
                yield route.peer, route.mine.numel() * pulled
        if pushed:
            for route in halo.routes(slot, self.reads, "cut gradient"):
                yield route.peer, route.theirs.numel() * pushed

    def histories(self) -> _Sent:
        """Rows that a replica computed, to the other holders of the stage."""
        if not self.feed.dealt or self.feed.policy.mode == "drop" or not self.reads.kept:
            return
        for stage in range(self.schedule.num_stages):
            columns = sum(width for _, width in self.cut_widths(stage))
            for mine, other in permutations(range(self.schedule.num_replicas), 2):
                rows = sum(chunk.num_rows for chunk in self.reads.ran(mine))
                for source in self.feed.mesh.processes_of(self.schedule.rank_of(stage, mine)):
                    for target in self.feed.mesh.processes_of(self.schedule.rank_of(stage, other)):
                        yield source, target, rows * columns * self.size
