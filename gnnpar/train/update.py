"""`Update`: parameters, optimizer and learning-rate schedule of one stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from gnnpar.config.schema import RunConfig
from gnnpar.model import Model
from gnnpar.runtime import AnyStage, StageWeights
from gnnpar.schedule import Schedule
from gnnpar.train.optim import build_lr_schedule, build_optimizer
from gnnpar.train.unflushed import make_weights

T = TypeVar("T", bound=Tensor)

__all__ = ["Update"]


@dataclass(frozen=True)
class Update:
    """What turns a stage's gradients into new parameters.

    Attributes:
        named: parameters that are trained. state: all parameters and buffers. Both by global name.
        weights: where updates are made amid the passes of a step (`weights.policy`), else None.
    """

    stage: AnyStage
    named: dict[str, Parameter]
    state: dict[str, Tensor]
    optimizer: Optimizer
    lr_schedule: LambdaLR | None
    weights: StageWeights | None

    @classmethod
    def of(cls, config: RunConfig, schedule: Schedule, model: Model, stage: AnyStage, number: int) -> Update:
        """That of a stage of `model`, the one of this number."""
        named = {name: p for name, p in _own(model.named_parameters(), stage.parameters()) if p.requires_grad}
        if stage.head is not None:
            named |= {f"heads.{number}.{name}": p for name, p in stage.head.named_parameters()}
        buffers = [b for _, layer in stage.layers for b in layer.buffers()]
        state: dict[str, Tensor] = dict(_own(model.named_parameters(), stage.parameters()))
        state.update(_own(model.named_buffers(), buffers))
        weights = None if config.weights.policy == "flush" else make_weights(config, schedule, number, named)
        optimizer = weights.optimizer if weights else build_optimizer(named, config.optimizer, config.train)
        return cls(stage, named, state, optimizer, build_lr_schedule(optimizer, config.train), weights)

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.named.values() if p.grad is not None]

    def begin(self, synchronous: bool) -> None:
        """Before a step: forget gradients. `synchronous`: updates of the step wait for all passes."""
        if self.weights is not None:
            self.weights.synchronous = synchronous
        else:
            self.optimizer.zero_grad(set_to_none=True)

    def end(self, ends_epoch: bool) -> None:
        """After it: update, where that has not been done, and what follows an update or an epoch."""
        if self.weights is not None:
            self.weights.settle()
        else:
            self.optimizer.step()
        for _, layer in self.stage.layers:
            layer.commit()
        if self.lr_schedule is not None and ends_epoch:
            self.lr_schedule.step()


def _own(named: Iterable[tuple[str, T]], tensors: Iterable[Tensor]) -> list[tuple[str, T]]:
    """Those of `named` that are among `tensors`."""
    own = {id(tensor) for tensor in tensors}
    return [(name, tensor) for name, tensor in named if id(tensor) in own]
