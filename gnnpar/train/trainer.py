"""`Trainer`: one rank's share of a training run: steps and exact evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch import ChunkedGraph, SampledStep
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Mesh
from gnnpar.errors import InputError, RunError
from gnnpar.history import HistoryPolicy, Reads
from gnnpar.model import Model
from gnnpar.runtime import Stage, needs_two_copies, record_parts
from gnnpar.schedule import lower, whole
from gnnpar.trace import Recorder
from gnnpar.train.assemble import build_executor, deal_layers
from gnnpar.train.evaluation import Evaluator, Scores
from gnnpar.train.feed import ChunkFeed, Feed
from gnnpar.train.histories import histories_state, load_histories
from gnnpar.train.memory import release_freed_memory
from gnnpar.train.optim import clip_coefficient
from gnnpar.train.order import build_schedule
from gnnpar.train.sampled_feed import SampledFeed
from gnnpar.train.update import Update

__all__ = ["StepResult", "Trainer"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One optimizer update, or all those of an epoch.

    Attributes:
        loss: per training label, the same on all ranks.
        history_age: age in steps of the histories read, the mean over these reads; 0 where there were none.
        history_share: share of edge reads that were historical.
        seconds: wall time on this rank.
        history_age_max: age of the oldest row read.
        num_labels: that the loss is the mean over.
        num_reads: edge reads.
    """

    loss: float
    history_age: float
    history_share: float
    seconds: float
    history_age_max: int = 0
    num_labels: float = 1
    num_reads: int = 1

    @classmethod
    def of_epoch(cls, steps: Sequence[StepResult]) -> StepResult:
        """All steps of an epoch as one; a single one is returned as it is."""
        if len(steps) == 1:
            return steps[0]
        labels, reads = sum(one.num_labels for one in steps), sum(one.num_reads for one in steps)
        late = [one.num_reads * one.history_share for one in steps]
        ages = sum(one.history_age * count for one, count in zip(steps, late, strict=True))
        return cls(
            sum(one.loss * one.num_labels for one in steps) / (labels or 1),
            ages / (sum(late) or 1),
            sum(late) / (reads or 1),
            sum(one.seconds for one in steps),
            max(one.history_age_max for one in steps),
            labels,
            reads,
        )


class Trainer:
    """Trains this rank's stages of a model.

    Every rank makes the same calls in the same order. The model is built whole on every rank (from one seed);
    a rank trains only its stages.

    Args:
        model: all layers.
        chunked: the graph, renumbered chunk by chunk.
        config: of the run, the same on all ranks.
        context: of this rank; its world size is that of the mesh.
        recorder: gets what this rank does and when; with a log, also the parts of its stages.
    """

    def __init__(
        self,
        model: Model,
        chunked: ChunkedGraph,
        config: RunConfig,
        context: Context,
        recorder: Recorder | None = None,
    ) -> None:
        self.config = config
        self.context = context
        self.mesh = Mesh.of(config)
        _check_size(self.mesh, context)
        dtype = getattr(torch, config.dtype)
        self.chunked = chunked.to(dtype, context.device)
        self.recorder = recorder or Recorder()
        self.step = 0
        self.step_order: tuple[int, ...] = ()
        model.to(device=context.device, dtype=dtype)
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self._units, self.layer_names = model.units(), model.layer_names()
        self.split, self.schedule = deal_layers(model, self.chunked, config, context, self.mesh)
        release_freed_memory()
        self.policy = HistoryPolicy.of(config)
        chunked_steps = config.batch.num_chunks > 1
        two = chunked_steps and needs_two_copies(model, self.policy, config.memory.recompute)
        plan = config, self.mesh, self.schedule, self.chunked
        self.feed: Feed = (
            SampledFeed(*plan, model, self.split, context)
            if config.batch.sampled
            else ChunkFeed(*plan, 2 if two else 1, model.chunk_dependent)
        )
        self.column, self.way = self.mesh.place_of(context.rank)
        self.executor, models, stages = build_executor(model, self.split, self.feed, context, self.recorder)
        if self.recorder.log is not None:
            parted = [held for held in self.executor.stages.values() if isinstance(held, Stage)]
            record_parts(parted, self.recorder)
        self.evaluator = Evaluator(
            self.schedule, self.mesh, self.executor, stages, self.chunked, context, config
        )
        held = self.executor.stages
        self._updates = [
            Update.of(config, self.schedule, models[replica], stage, number)
            for (replica, number), stage in held.items()
        ]
        self.executor.weights = {
            key: update.weights for key, update in zip(held, self._updates, strict=True) if update.weights
        }
        self._lowered = lower(self.schedule), lower(whole(self.schedule))
        self._flushed = lower(build_schedule(config, flush=True)) if config.weights.sync_epochs else None
        self._refresh = lower(whole(self.schedule, backward=False))

    def train_epoch(self) -> StepResult:
        """The steps of one epoch, in which every chunk runs, or every seed is dealt out, once. Raises as
        `train_step`."""
        steps = [self.train_step()]
        while not self.feed.ends_epoch(self.step - 1):
            steps.append(self.train_step())
        return StepResult.of_epoch(steps)

    def train_step(self) -> StepResult:
        """All micro-batches of a step, after a refresh of the histories where one is due; then one optimizer
        update. Raises `RunError` where the loss is not finite."""
        start = time.perf_counter()
        with self.recorder.span("input"):
            refresh = self.feed.refresh(self.step)
        if refresh is not None:
            self.executor.run(self._refresh, refresh, self.step)
        with self.recorder.span("input"):
            reads: Reads | SampledStep = self.feed.reads(self.step)
            self.step_order = self.feed.order(self.step)
        waits = self._flushed is not None and self.step < self.config.weights.sync_epochs
        program = self._flushed if waits and not reads.exact else self._lowered[reads.exact]
        assert program is not None
        for update in self._updates:
            update.begin(synchronous=waits or reads.exact)
        loss = self.executor.run(program, reads, self.step)
        value = self._share_loss(loss)
        with self.recorder.span("STEP"):
            self._clip()
            for update in self._updates:
                update.end(self.feed.ends_epoch(self.step))
        self.executor.settle()
        self.step += 1
        return StepResult(
            value,
            reads.age,
            reads.history_share,
            self.recorder.add("step", start, batch=self.step - 1),
            reads.age_max,
            reads.normaliser if reads.labelled or self.policy.compensate else 0,
            reads.num_reads,
        )

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of this rank's stages in the last step, by global parameter name; zero where updates
        without a flush have used them up."""
        return {
            name: p.grad if p.grad is not None else torch.zeros_like(p)
            for update in self._updates
            for name, p in update.named.items()
        }

    def parameters(self) -> dict[str, Tensor]:
        """Parameters of this rank's stages, by global name."""
        return {name: p.detach() for update in self._updates for name, p in update.named.items()}

    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers (running statistics) of this rank's stages, by global name."""
        return {name: t.detach() for update in self._updates for name, t in update.state.items()}

    @property
    def layers_per_stage(self) -> list[int]:
        """Graph layers of each stage, as `parallel.layers_per_stage` takes them."""
        bounds = [0, *accumulate(self.split)]
        return [sum(unit.start in range(*ends) for unit in self._units) for ends in pairwise(bounds)]

    def describe_stages(self) -> str:
        """This rank's stages and their layers, in words."""
        names, ways = self.layer_names, self.mesh.ways[self.column]
        shared = f"way {self.way} of {ways} of " if ways > 1 else ""
        return shared + ", ".join(
            f"stage {stage}{f' of replica {replica}' if self.schedule.num_replicas > 1 else ''}: "
            f"{names[held.layers[0][0]]} to {names[held.layers[-1][0]]}"
            for (replica, stage), held in self.executor.stages.items()
        )

    def evaluate(self) -> Scores:
        """Exact scores of the whole graph, layer by layer without histories; the same on all ranks."""
        with self.recorder.span("evaluation"):
            scores = self.evaluator.run(self.feed.whole)
            if not self.config.trace.history_error or isinstance(self.feed, SampledFeed):
                return scores
            offset = self.feed.history_offset(self.step)
            error = self.evaluator.history_error(self.feed.whole, self.feed.ran_in, offset)
            return replace(scores, history_error=error)

    def histories_state(self) -> dict[str, Any]:
        """What the next step reads of earlier ones (see `gnnpar.train.histories`)."""
        return histories_state(self.executor.stages, self.feed)

    def load_histories(self, state: Mapping[str, Any]) -> None:
        """Put back what `histories_state` gave at this step. Raises `InputError` where it does not fit."""
        load_histories(self.executor.stages, self.feed, state)

    def close(self) -> None:
        """End what works ahead of the next step."""
        self.feed.close()

    def _share_loss(self, loss: Tensor | None) -> float:
        value = torch.zeros(1, dtype=torch.float64, device=self.context.device)
        if loss is not None:
            value.fill_(loss.item())
        with self.recorder.span("wait", "control"):
            self.context.all_reduce(value, "sharing the loss")
        number = float(value)
        if not math.isfinite(number):
            raise RunError(
                f"the loss is {number} at step {self.step}: lower train.lr, set train.grad_clip, "
                "or use dtype=float64"
            )
        return number

    def _clip(self) -> None:
        """Scale gradients so that their norm over all stages, each once, is at most `train.grad_clip`."""
        if not self.config.train.grad_clip:
            return
        square = torch.zeros(1, dtype=torch.float64, device=self.context.device)
        for (replica, _), update in zip(self.executor.stages, self._updates, strict=True):
            if replica == 0 and self.way == 0:  # all copies of a stage hold the same gradients
                square += sum(gradient.double().square().sum() for gradient in update.gradients())
        with self.recorder.span("wait", "control"):
            self.context.all_reduce(square, "summing gradient norms")
        coefficient = clip_coefficient(float(square), self.config.train.grad_clip)
        for update in self._updates:
            for gradient in update.gradients():
                gradient.mul_(coefficient)


def _check_size(mesh: Mesh, context: Context) -> None:
    if context.world_size != mesh.size:
        made = "parallel.stages, parallel.ways and parallel.replicas make"
        given = f"{context.world_size} processes, but {made} {mesh.size}"
        raise InputError("trainer", [f"{given}; start as many, or change these keys"])
