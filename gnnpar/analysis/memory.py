"""Memory of every process by kind, from the closed forms that the buffers are made by.

Exact: parameters, gradients, optimizer state, cuts, Z and D, the graph, features. Estimated, from the
simulated schedule and chunks of equal size: payloads in flight and activations. Not counted: libraries (about
350 MB a process), the allocator's slack, temporary tensors of one passage, and what evaluation holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from gnnpar.analysis.layers import LayerCost
from gnnpar.graph import Graph, SparseRows
from gnnpar.history import Reads
from gnnpar.model import FEATURES, Layer, Model, Push
from gnnpar.schedule import simulate
from gnnpar.train.feed import ChunkFeed

__all__ = ["ESTIMATED", "KINDS", "process_memory"]

KINDS = (
    "parameters",
    "other stages",
    "gradients",
    "optimizer",
    "cuts",
    "Z and D",
    "payloads",
    "activations",
    "structure",
    "features",
)
"""`other stages`: parameters of stages that the process does not run; it builds the whole model.
`cuts`: what enters aggregations, a row for every vertex and a layer, and copies that serve as history."""
ESTIMATED = frozenset({"payloads", "activations"})
_MOMENTS = {"adam": 2, "adamw": 2, "sgd": 0}


def process_memory(
    model: Model, split: Sequence[int], feed: ChunkFeed, costs: Sequence[LayerCost], values: dict[str, float]
) -> list[dict[str, int]]:
    """Bytes by kind of every process.

    Args:
        model: of the run, in the type of the run.
        split: how many of `model.all_layers()` each stage has.
        costs: of all layers: they say what is kept for the backward pass.
        values: of the symbols in them.
    """
    job = _Job(model, split, feed, costs, values)
    found = []
    for column, ways in enumerate(feed.mesh.ways):
        found += [job.of_column(column, ways)] * ways
    return found


@dataclass(frozen=True)
class _Job:
    model: Model
    split: Sequence[int]
    feed: ChunkFeed
    costs: Sequence[LayerCost]
    values: dict[str, float]

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return int(getattr(torch, self.feed.config.dtype).itemsize)

    def of_column(self, column: int, ways: int) -> dict[str, int]:
        """One process of a column."""
        feed, size, n = self.feed, self.size, self.feed.chunked.graph.num_nodes
        bounds = [0, *accumulate(self.split)]
        every, cuts = self.model.all_layers(), self.model.cut_specs(feed.chunked.graph)
        held = [(r, range(bounds[s], bounds[s + 1])) for r, s in feed.schedule.stages_on(column)]
        layers = [(index, every[index]) for _, stage in held for index in stage]
        parameters = [p for _, stage in held for p in _distinct(every[index] for index in stage)]
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        own = sum(_bytes(p, size) for p in parameters) + sum(
            _bytes(b, size) for _, layer in layers for b in layer.buffers()
        )
        idle = [i for i in range(len(every)) if not any(r == 0 and i in stage for r, stage in held)]
        widths = [(one, torch.Size(cuts[index].tail).numel()) for index, one in layers if index in cuts]
        columns = sum(width for _, width in widths)
        pulled = sum(width for one, width in widths if not isinstance(one.operator, Push))
        optimizer = feed.config.optimizer
        moments = 1 if optimizer.name == "sgd" and optimizer.momentum else _MOMENTS[optimizer.name]
        graph = feed.trained.graph
        reads = any(index == 0 or FEATURES in layer.reads for index, layer in layers)
        push = any(isinstance(layer.operator, Push) for _, layer in layers)
        return {
            "parameters": own,
            "other stages": sum(_bytes(p, size) for p in _distinct(every[i] for i in idle)),
            "gradients": trained * size,
            "optimizer": moments * trained * size,
            "cuts": feed.copies * n * columns * size,
            "Z and D": (self._rows_of_z(ways) * pulled + n * (columns - pulled)) * size,
            "payloads": self._payloads(column, ways),
            "activations": self._activations(column, ways, held),
            "structure": _structure(graph, push, pull=bool(columns) and not push),
            "features": _features(feed.chunked.graph, size) if reads else 0,
        }

    @cached_property
    def _late(self) -> Reads:
        """Of a step after the warm-up."""
        return self.feed.reads(self.feed.policy.warmup_steps)

    @property
    def _slots(self) -> int:
        return len(self._late.slots)

    def _rows_of_z(self, ways: int) -> int:
        """Where a step runs some of the chunks, and no other way reads them, Z has their rows only."""
        late, policy = self._late, self.feed.policy
        shared = ways > 1 and self.feed.config.batch.kind == "chunks"
        if policy.steps_per_epoch == 1 or policy.compensate or shared or late.exact:
            return late.planner.chunked.graph.num_nodes
        return late.planner.most_rows(len(late.places))

    def _micro_batch(self, ways: int) -> float:
        """Share of all rows that a process runs at a time."""
        return 1 / (self._slots * self.feed.policy.steps_per_epoch * ways)

    def _in_flight(self, column: int) -> float:
        """Micro-batches that a stage of the column holds at once, on average over its stages."""
        feed = self.feed
        if self._slots == 1:
            return 1.0
        stages = len(feed.schedule.stages_on(column))
        return simulate(feed.schedule).peak_in_flight[column] / max(stages, 1)

    def _payloads(self, column: int, ways: int) -> int:
        """What arrived for micro-batches in flight, and what was sent, which is let go when a step ends."""
        feed, schedule = self.feed, self.feed.schedule
        n = feed.chunked.graph.num_nodes
        over = self.model.payloads(feed.chunked.graph, self.split, schedule.stage_edges)
        rows = n * self._micro_batch(ways) * self._in_flight(column)
        total = 0.0
        for placed in schedule.placement:
            for (source, target), specs in over.items():
                if placed[source] == placed[target]:
                    continue
                there = sum(torch.Size(spec.tail).numel() for spec in specs)
                back = sum(torch.Size(spec.tail).numel() for spec in specs if spec.needs_grad)
                sent = n / feed.policy.steps_per_epoch / ways / schedule.num_replicas
                if placed[target] == column:
                    total += there * rows + back * sent
                if placed[source] == column:
                    total += there * sent
        return int(total * self.size)

    def _activations(self, column: int, ways: int, held: Sequence[tuple[int, range]]) -> int:
        """What autograd keeps: of all micro-batches in flight, or of one layer where it is recomputed."""
        share = self._micro_batch(ways)
        graph = self.feed.trained.graph
        rows = {"n": graph.num_nodes * share, "m": graph.num_edges * share, "t": self.values["t"] * share}
        saved = [self.costs[i].saved.value({**self.values, **rows}) for _, stage in held for i in stage]
        if self.feed.config.memory.recompute:
            return int(max(saved) * self.size)
        return int(sum(saved) * self._in_flight(column) * self.size)


def _structure(graph: Graph, push: bool, pull: bool) -> int:
    """CSR, ids, weights; the transpose of a directed graph; columns of blocks, for layers that see edges."""
    total = sum(_bytes(t) for t in (graph.indptr, graph.indices, graph.node_ids, graph.y))
    total += sum(_bytes(t) for t in (graph.edge_weight, graph.edge_attr) if t is not None)
    if pull and not graph.is_symmetric:
        total += _bytes(graph.indptr) + _bytes(graph.indices)
    if push:
        total += 8 * graph.num_edges
    return total


def _features(graph: Graph, size: int) -> int:
    x = graph.x
    if isinstance(x, SparseRows):
        return _bytes(x.indptr) + _bytes(x.indices) + x.indices.numel() * size
    return 0 if x is None else x.numel() * size


def _bytes(tensor: Tensor, size: int | None = None) -> int:
    """Of a tensor; `size`: of a real number, which the run converts."""
    real = size is not None and tensor.is_floating_point()
    return tensor.numel() * (size if real and size is not None else tensor.element_size())


def _distinct(layers: Iterable[Layer]) -> list[Tensor]:
    return list({id(p): p for layer in layers for p in layer.parameters()}.values())
