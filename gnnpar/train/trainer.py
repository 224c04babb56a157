"""`Trainer`: one rank's share of a training run: steps and exact evaluation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnpar.batch import ChunkedGraph, chunk_order
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Transport
from gnnpar.errors import RunError
from gnnpar.history import HistoryPolicy, ReadsPlanner
from gnnpar.model import LayerStack
from gnnpar.plan import plan_stages
from gnnpar.runtime import Executor, build_stage, needs_two_copies
from gnnpar.schedule import Schedule, fill_drain, lower
from gnnpar.trace import Recorder
from gnnpar.train.evaluation import Evaluator, Scores
from gnnpar.train.optim import build_lr_schedule, build_optimizer, clip_coefficient

__all__ = ["StepResult", "Trainer"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One optimizer update.

    Attributes:
        loss: of the step, the same on all ranks.
        history_age: age in steps of the histories read, 0 where none were.
        history_share: share of edge reads that were historical.
        seconds: wall time of the step on this rank.
    """

    loss: float
    history_age: int
    history_share: float
    seconds: float


class Trainer:
    """Trains this rank's stage of a model.

    Every rank makes the same calls in the same order. The model is built whole on every rank (from one seed);
    a rank trains and keeps only its stage.

    Args:
        model: all layers.
        chunked: the graph, renumbered chunk by chunk.
        config: of the run, the same on all ranks.
        context: of this rank; its world size is the number of stages.
    """

    def __init__(self, model: LayerStack, chunked: ChunkedGraph, config: RunConfig, context: Context) -> None:
        self.config = config
        self.context = context
        dtype = getattr(torch, config.dtype)
        chunked = chunked.to(dtype)
        self.chunked = chunked
        self.recorder = Recorder(keep_events=config.trace.events)
        self.step = 0
        self.step_order: tuple[int, ...] = ()
        model.to(device=context.device, dtype=dtype)
        split = plan_stages(model, chunked, config, context)
        self.policy = HistoryPolicy.of(config.history)
        copies = 2 if needs_two_copies(model, self.policy, config.memory.recompute) else 1
        self.planner = ReadsPlanner(chunked, self.policy, copies, model.chunk_dependent)
        self.split = split
        first = sum(split[: context.rank])
        self.stage = build_stage(
            model, chunked, range(first, first + split[context.rank]), copies, config, context.device
        )
        transport = Transport(context, self.recorder)
        self.executor = Executor(
            context.rank, {context.rank: self.stage}, transport, self.recorder, context.device
        )
        self.evaluator = Evaluator(
            self.stage, self.executor, transport, chunked, context, config.train.metric
        )
        own = {id(parameter) for _, layer in self.stage.layers for parameter in layer.parameters()}
        self._named = {name: p for name, p in model.named_parameters() if id(p) in own}
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self.optimizer = build_optimizer(self._named, config.optimizer, config.train)
        self.lr_schedule = build_lr_schedule(self.optimizer, config.train)
        self._schedules = {count: self._schedule(count) for count in {1, chunked.num_chunks}}

    def _schedule(self, num_micro_batches: int) -> Schedule:
        return lower(fill_drain(self.context.world_size, num_micro_batches))

    def train_step(self) -> StepResult:
        """All micro-batches, then one optimizer update. Raises `RunError` where the loss is not finite."""
        start = time.perf_counter()
        config = self.config
        self.step_order = chunk_order(
            self.chunked.num_chunks, config.seed, self.step, shuffle=config.batch.shuffle
        )
        reads = self.planner.plan(self.step, self.step_order)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.executor.run(self._schedules[len(reads.slots)], reads, self.step)
        value = self._share_loss(loss)
        with self.recorder.span("STEP"):
            self._clip()
            self.optimizer.step()
            for _, layer in self.stage.layers:
                layer.commit()
            if self.lr_schedule is not None:
                self.lr_schedule.step()
        self.step += 1
        return StepResult(value, reads.age, reads.history_share, time.perf_counter() - start)

    def gradients(self) -> dict[str, Tensor]:
        """Gradients of this rank's stage in the last step, by global parameter name."""
        return {
            name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in self._named.items()
        }

    def parameters(self) -> dict[str, Tensor]:
        """Parameters of this rank's stage, by global name."""
        return {name: p.detach() for name, p in self._named.items()}

    def evaluate(self) -> Scores:
        """Exact scores of the whole graph, layer by layer without histories; the same on all ranks."""
        return self.evaluator.run(self.planner.exact)

    def _share_loss(self, loss: Tensor | None) -> float:
        value = torch.zeros(1, dtype=torch.float64, device=self.context.device)
        if loss is not None:
            value.fill_(loss.item())
        with self.recorder.span("wait", "loss"):
            self.context.broadcast(value, self.context.world_size - 1, "sharing the loss")
        number = float(value)
        if not math.isfinite(number):
            raise RunError(
                f"the loss is {number} at step {self.step}: lower train.lr, set train.grad_clip, "
                "or use dtype=float64"
            )
        return number

    def _clip(self) -> None:
        """Scale gradients so that their norm over all stages is at most `train.grad_clip`."""
        if not self.config.train.grad_clip:
            return
        gradients = [p.grad for p in self._named.values() if p.grad is not None]
        square = torch.stack([g.double().square().sum() for g in gradients]).sum().reshape(1)
        self.context.all_reduce(square, "summing gradient norms")
        coefficient = clip_coefficient(float(square), self.config.train.grad_clip)
        for gradient in gradients:
            gradient.mul_(coefficient)
