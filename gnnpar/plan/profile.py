"""How layers are shared out over stages: by hand, or so that the slowest stage is as fast as possible."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeVar

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context
from gnnpar.history import HistoryPolicy, Reads, ReadsPlanner
from gnnpar.model import Edge, Model
from gnnpar.plan.balance import balance_branches
from gnnpar.runtime import Payload, Slot, Stage, build_stage
from gnnpar.runtime.passage import Part, Passage
from gnnpar.runtime.segment import RowsOf, Segment, State

T = TypeVar("T")

__all__ = ["plan_stages", "profile_layers", "stage_faults"]


def plan_stages(
    model: Model,
    chunked: ChunkedGraph,
    config: RunConfig,
    context: Context,
    num_stages: int,
    ways: Sequence[int] | None = None,
    by_branch: bool = False,
) -> tuple[int, ...]:
    """Entries of `model.all_layers()` per stage, the same on all ranks.

    The encoder goes with the first layer and the decoder with the last. Without `parallel.layers_per_stage`,
    rank 0 times every layer on one chunk, and minimises the slowest stage (GNNPipe's dynamic programme).

    Args:
        ways: processes that share each stage, which is so many times faster; None: one each.
        by_branch: a stage holds layers of one branch only.
    """
    given, units = config.parallel.layers_per_stage, model.units()
    if given is not None:
        counts = list(given)
    elif num_stages == 1:
        counts = [len(units)]
    elif num_stages == len(units):
        counts = [1] * num_stages
    else:
        costs = profile_layers(model, chunked, config) if context.is_first else ()
        costs = context.broadcast_object(costs, 0, "sharing the profile")
        branches = model.branches_in_order().values() if by_branch else [units]
        merged = [[sum(costs[i] for i in unit) for unit in branch] for branch in branches]
        counts = list(chain.from_iterable(balance_branches(merged, num_stages, ways)))
    bounds = [0, *accumulate(counts)]
    return tuple(sum(map(len, units[start:stop])) for start, stop in pairwise(bounds))


def stage_faults(config: RunConfig, model: Model, num_stages: int, by_branch: bool = False) -> list[str]:
    """What is wrong with so many stages for a model. `by_branch`: as for `plan_stages`."""
    given, num_layers, ranks = config.parallel.layers_per_stage, model.num_layers, config.parallel.stages
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
    return [
        *(_across_branches(config, model, num_stages) if by_branch else []),
        *(_shared(model) if num_stages > 1 else []),
    ]


def _across_branches(config: RunConfig, model: Model, num_stages: int) -> list[str]:
    """Stages that would hold layers of several branches."""
    given, branches = config.parallel.layers_per_stage, model.branches_in_order()
    other = (
        "or schedule.name=one_f_one_b, which runs the branches one after the other on any number of stages"
    )
    if num_stages < len(branches):
        return [
            f"parallel.stages: {num_stages}, but schedule.name={config.schedule.name} runs each of the "
            f"model's {len(branches)} branches ({', '.join(branches)}) on stages of its own; use "
            f"parallel.stages={len(branches)} or more, {other}"
        ]
    ends = set(accumulate(map(len, branches.values())))
    if given is None or ends <= set(accumulate(given)):
        return []
    sizes = ", ".join(f"{name} {len(units)}" for name, units in branches.items())
    nearest = list(
        chain.from_iterable(balance_branches([[1] * len(u) for u in branches.values()], num_stages))
    )
    return [
        f"parallel.layers_per_stage: {list(given)} puts layers of several branches on one stage (layers: "
        f"{sizes}); use {nearest}, {other}"
    ]


def _shared(model: Model) -> list[str]:
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
    model: Model, chunked: ChunkedGraph, config: RunConfig, repeats: int = 3
) -> tuple[float, ...]:
    """Seconds of every entry of `model.all_layers()`, forward and backward over one chunk of middling cost.

    Every branch runs as one stage through the same code as in training, fused passes included. A passage
    between two aggregations counts for the layer whose aggregation it begins with; the first one for the
    layer that the branch begins with. The least of `repeats`, and of layers that are alike, counts. Memory:
    the rows of one chunk, in buffers that are mapped for all rows.
    """
    model = copy.deepcopy(model)  # gradients and statistics of the run must not know of this
    chunk = _middling(chunked)
    reads = ReadsPlanner(chunked, HistoryPolicy("latest", 1, 1.0, 1), 1).exact
    split = [units[-1].stop - units[0].start for units in model.branches_in_order().values()]
    payloads = model.payloads(chunked.graph, split, model.stage_edges(split))
    bounds = [0, *accumulate(split)]
    device = torch.device(config.device)
    stages = [
        build_stage(model, chunked, range(start, stop), 1, config, device, payloads, number)
        for number, (start, stop) in enumerate(pairwise(bounds))
    ]
    timed = [[_TimedPassage(passage) for passage in stage.passages] for stage in stages]
    for stage, passages in zip(stages, timed, strict=True):
        stage.passages = list(passages)
    for _ in range(repeats):
        _run_once(stages, (chunk,), reads)
    segments = [segment for stage in stages for segment in stage.segments]
    starts = [stage.layers[0][0] for stage in stages for _ in stage.segments]
    kinds = [_kind(segment) for segment in segments]
    least: dict[Hashable, float] = {}
    for kind, passage in zip(kinds, chain.from_iterable(timed), strict=True):
        least[kind] = min(passage.seconds, least.get(kind, passage.seconds))
    costs = [0.0] * bounds[-1]
    for kind, segment, start in zip(kinds, segments, starts, strict=True):
        costs[start if segment.behind is None else segment.behind[0]] += least[kind]
    return tuple(costs)


def _run_once(stages: Sequence[Stage], slot: Slot, reads: Reads) -> None:
    """One slot through all stages, forward and backward, in this process."""
    crossing: dict[Edge, dict[Chunk, Payload]] = {}
    for number, stage in enumerate(stages):
        arrived = {source: crossing[source, number] for source in stage.receives}
        out = stage.forward(slot, arrived, reads, 0)
        crossing.update(((number, target), payload) for target, payload in out.items())
    for number, stage in reversed(list(enumerate(stages))):
        arrived = {target: crossing[target, number] for target in stage.sends}
        out = stage.backward(slot, arrived, reads, 0)
        crossing.update(((number, source), payload) for source, payload in out.items())


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
