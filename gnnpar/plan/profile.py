"""How layers are shared out over stages: by hand, or so that the slowest stage is as fast as possible."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context
from gnnpar.history import HistoryPolicy, Reads, ReadsPlanner
from gnnpar.model import LayerStack
from gnnpar.plan.balance import balance_stages
from gnnpar.runtime import build_stage
from gnnpar.runtime.passage import Part, Passage
from gnnpar.runtime.segment import RowsOf, Segment, State

T = TypeVar("T")

__all__ = ["plan_stages", "profile_layers", "stage_faults"]


def plan_stages(
    model: LayerStack,
    chunked: ChunkedGraph,
    config: RunConfig,
    context: Context,
    num_stages: int,
    ways: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Entries of `model.all_layers()` per stage, the same on all ranks.

    The encoder goes with the first layer and the decoder with the last. Without `parallel.layers_per_stage`,
    rank 0 times every layer on one chunk, and minimises the slowest stage (GNNPipe's dynamic programme).

    Args:
        ways: processes that share each stage, which is so many times faster; None: one each.
    """
    given, num_layers = config.parallel.layers_per_stage, len(model.layers)
    if given is not None:
        counts = list(given)
    elif num_stages == 1:
        counts = [num_layers]
    elif num_stages == num_layers:
        counts = [1] * num_layers
    else:
        costs = profile_layers(model, chunked, config) if context.is_first else ()
        costs = context.broadcast_object(costs, 0, "sharing the profile")
        merged = [costs[0] + costs[1], *costs[2:-2], costs[-2] + costs[-1]]
        counts = list(balance_stages(merged, num_stages, ways))
    counts[0] += 1
    counts[-1] += 1
    return tuple(counts)


def stage_faults(config: RunConfig, model: LayerStack, num_stages: int) -> list[str]:
    """What is wrong with so many stages for a model."""
    given, num_layers, ranks = config.parallel.layers_per_stage, len(model.layers), config.parallel.stages
    if num_stages > num_layers and num_stages != ranks:
        return [
            f"parallel.stages: schedule.name={config.schedule.name} makes {num_stages} stages on {ranks} "
            f"ranks, but the model has {num_layers} layers; use fewer ranks, or {num_stages} layers or more"
        ]
    if num_stages > num_layers:
        return [
            f"parallel.stages: {num_stages} stages, but the model has {num_layers} layers; "
            f"use {num_layers} or fewer"
        ]
    if given is not None and (len(given) != num_stages or sum(given) != num_layers):
        return [
            f"parallel.layers_per_stage: {list(given)} must be {num_stages} numbers with sum "
            f"{num_layers} (the model's layers)"
        ]
    return _shared(model) if num_stages > 1 else []


def _shared(model: LayerStack) -> list[str]:
    """Layers that share parameters: stages would train copies of them."""
    faults: list[str] = []
    owners: dict[int, int] = {}
    for index, layer in enumerate(model.all_layers()):
        others = {owners.setdefault(id(p), index) for p in layer.parameters()} - {index}
        faults += [
            f"model: entries {other} and {index} of all_layers() share parameters, of which stages would "
            "train copies; use parallel.stages=1, or parameters of their own"
            for other in sorted(others)
        ]
    return faults


def profile_layers(
    model: LayerStack, chunked: ChunkedGraph, config: RunConfig, repeats: int = 3
) -> tuple[float, ...]:
    """Seconds of every entry of `model.all_layers()`, forward and backward over one chunk of middling cost.

    All layers run as one stage through the same code as in training, fused passes included. A passage between
    two aggregations counts for the layer whose aggregation it begins with; the first one for the encoder. The
    least of `repeats`, and of layers that are alike, counts. Memory: the rows of one chunk, in buffers that
    are mapped for all rows.
    """
    model = copy.deepcopy(model)  # gradients and statistics of the run must not know of this
    chunk = _middling(chunked)
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1).exact
    count = len(model.all_layers())
    stage = build_stage(model, chunked, range(count), 1, config, torch.device(config.device))
    timed = [_TimedPassage(passage) for passage in stage.passages]
    stage.passages = list(timed)
    for _ in range(repeats):
        stage.forward((chunk,), {}, reads, 0)
        stage.backward((chunk,), {}, reads, 0)
    kinds = [_kind(segment) for segment in stage.segments]
    least: dict[Hashable, float] = {}
    for kind, passage in zip(kinds, timed, strict=True):
        least[kind] = min(passage.seconds, least.get(kind, passage.seconds))
    costs = [0.0] * count
    for kind, segment in zip(kinds, stage.segments, strict=True):
        costs[0 if segment.behind is None else segment.behind[0]] += least[kind]
    return tuple(costs)


def _kind(segment: Segment) -> Hashable:
    """Equal for segments of equal layers, whose costs differ by noise only."""
    layers = [segment.behind, *segment.inner, segment.ahead]
    shapes = [
        (type(entry[1]), tuple(p.shape for p in entry[1].parameters()))
        for entry in layers
        if entry is not None
    ]
    return segment.behind is None, segment.ahead is None, tuple(shapes)


class _TimedPassage:
    """A passage with a stopwatch."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.least: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Forward and backward, each at its fastest."""
        return sum(self.least.values())

    def forward(self, chunk: Chunk, part: Part, reads: Reads, rows_of: RowsOf, keep: bool) -> None:
        self._time("forward", lambda: self.passage.forward(chunk, part, reads, rows_of, keep))

    def backward(
        self,
        chunk: Chunk,
        part: Part,
        cut_gradient: Tensor | None,
        following: State,
        reads: Reads,
        rows_of: RowsOf,
    ) -> None:
        run = self.passage.backward
        self._time("backward", lambda: run(chunk, part, cut_gradient, following, reads, rows_of))

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        return self._time("pull_back", lambda: self.passage.pull_back(chunk, reads))

    def _time(self, what: str, run: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - start
        self.least[what] = min(seconds, self.least.get(what, seconds))
        return result


def _middling(chunked: ChunkedGraph) -> Chunk:
    indptr = chunked.graph.indptr
    by_edges = sorted(chunked.chunks, key=lambda chunk: int(indptr[chunk.stop] - indptr[chunk.start]))
    return by_edges[len(by_edges) // 2]
