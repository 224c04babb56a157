"""`SampledFeed`: mini-batches drawn anew for every step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import torch

from gnnpar.batch import (
    ChunkedGraph,
    Linear,
    Mini,
    MiniBatch,
    Prefetch,
    SampledStep,
    SeedBatches,
    configured_sampler,
)
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Mesh
from gnnpar.history import HistoryPolicy, Reads, ReadsPlanner
from gnnpar.model import LayerGraph, Model, Pull, Push
from gnnpar.runtime.targets import has_label
from gnnpar.schedule import Schedule

__all__ = ["SampledFeed", "sampling_faults"]

_ENDLESS = 1 << 62


class SampledFeed:
    """Mini-batches of a process. Each is a function of the run's seed and its number, so whoever needs one
    draws it: all stages of a pipeline draw the same ones, and no structure is sent.

    That costs little: samplers that go from the seeds outwards draw only the hops of a process's own layers
    and of those after them, each hop a fraction of the next. Samplers with one block for all layers draw it
    on every stage, in a thread beside the computation.

    Args:
        chunked: the graph, on the CPU or not; drawn from on the CPU.
        split: layers of every stage.
    """

    copies = 1
    dealt = False

    def __init__(
        self,
        config: RunConfig,
        mesh: Mesh,
        schedule: Schedule,
        chunked: ChunkedGraph,
        model: Model,
        split: Sequence[int],
        context: Context,
    ) -> None:
        self.config, self.mesh, self.schedule, self.chunked = config, mesh, schedule, chunked
        self.policy = HistoryPolicy.of(config)
        self.device = context.device
        self.minis = [MiniBatch(index) for index in range(mesh.num_chunks)]
        self._chunk_dependent = model.chunk_dependent
        column = mesh.place_of(context.rank)[0]
        self._own = [one for one in self.minis if mesh.owner(column, one.index) == context.rank]
        layers, starts = model.all_layers(), [0, *accumulate(split)]
        first = min(starts[stage] for _, stage in schedule.stages_on(column))
        pulls = [layer.operator for layer in layers if isinstance(layer.operator, Pull)]
        self._pulls = bool(pulls)
        graph = chunked.graph.to("cpu")
        labelled = (graph.train_mask & has_label(graph)).nonzero()[:, 0]
        self._sampler, self._seeds = configured_sampler(
            config.batch,
            ChunkedGraph(graph, chunked.offsets),
            labelled,
            hops=sum(layer.operator is not None for layer in layers[first:]),
            linear=Linear(pulls[0].norm, pulls[0].self_loops) if pulls else None,
            seed=config.seed,
        )
        self._dealer = SeedBatches(
            self._seeds.index,
            config.batch.joined if config.batch.kind == "joined" else config.batch.size,
            seed=config.seed,
            num_ranks=len(self.minis),
            shuffle=config.batch.shuffle,
        )
        self._ahead: Prefetch[SampledStep] | None = None
        self._next = 0

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer updates of an epoch."""
        return self._dealer.num_steps

    def ends_epoch(self, step: int) -> bool:
        """Whether all seeds have been dealt out when this step has run."""
        return (step + 1) % self.steps_per_epoch == 0

    @property
    def trained(self) -> ChunkedGraph:
        """The graph that is evaluated, and drawn from."""
        return self.chunked

    @cached_property
    def whole(self) -> Reads:
        """All chunks together over all edges: evaluation."""
        return ReadsPlanner(self.chunked, self.policy, 1, self._chunk_dependent).exact

    def order(self, step: int) -> tuple[int, ...]:
        """The mini-batches of a step, slot after slot."""
        return tuple(one.index for slot in self._slots for one in slot)

    def reads(self, step: int) -> SampledStep:
        """The mini-batches of a step; those of the steps that follow are drawn ahead."""
        if not self.config.batch.prefetch:
            return self.draw(step)
        if self._ahead is None or step != self._next:
            self.close()
            depth, timeout_s = self.config.batch.prefetch, self.config.launch.timeout_s
            self._ahead = Prefetch(
                lambda number: self.draw(step + number), _ENDLESS, depth=depth, timeout_s=timeout_s
            )
        self._next = step + 1
        return next(self._ahead)

    def refresh(self, step: int) -> None:
        """Nothing is read that would have to be refreshed."""

    def close(self) -> None:
        """End the thread that draws ahead."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def draw(self, step: int) -> SampledStep:
        """The mini-batches of a step that this process runs. A function of the step alone."""
        epoch, place = divmod(step, self.steps_per_epoch)
        seeds = self._dealer.step(epoch, place)
        every = torch.cat([own for _, own in seeds])
        drawn = {}
        for one in self._own:
            key, own = seeds[one.index]
            batch = self._sampler.sample(own, key).to(self.device)
            if self._pulls:  # here, where it may be ahead of the computation
                for block in batch.blocks:
                    _ = block.transpose
            drawn[one] = Mini(batch, self._seeds.share(own, every))
        return SampledStep(self._slots, drawn, self._seeds.total(every))

    @cached_property
    def _slots(self) -> tuple[tuple[MiniBatch, ...], ...]:
        """Place p of every slot is that of one way: as in `slot_order`."""
        count = self.config.batch.micro_batches
        return tuple(tuple(self.minis[slot::count]) for slot in range(count))


def sampling_faults(config: RunConfig, model: Model) -> list[str]:
    """What is wrong with the mini-batches for a model."""
    batch = config.batch
    if batch.kind not in ("neighbour", "layerwise"):
        return []
    if isinstance(model, LayerGraph):
        return [
            f"batch.kind: {batch.kind} draws edges layer after layer, but the model has branches; use "
            "batch.kind=shadow, saint or joined, whose layers all read one subgraph"
        ]
    layers = [pair for pair in zip(model.layer_names(), model.all_layers(), strict=True) if pair[1].operator]
    given, faults = list(batch.fanouts or ()), []
    if len(given) != len(layers):
        faults.append(
            f"batch.fanouts: {given} has {len(given)} numbers, but {len(layers)} layers of the model "
            "aggregate; give one a layer, the last layer's first"
        )
    pushes = [name for name, layer in layers if isinstance(layer.operator, Push)]
    if config.history.control_variates and pushes:
        faults.append(
            f"history.control_variates: {pushes[0]} looks at single edges, and histories of vertices do not "
            "tell what all edges would sum to; use layers that aggregate linearly, such as gcn or sage"
        )
    return faults
