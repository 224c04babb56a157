"""Optimizers, learning-rate schedules, gradient clipping, as the config names them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from gnnpar.config import OptimizerConfig, TrainConfig
from gnnpar.errors import InputError

__all__ = ["build_lr_schedule", "build_optimizer", "clip_coefficient", "lr_factor"]

CONVOLUTIONS = ("layers.", "branches.")
"""Prefixes of the parameter names of the layers between encoder and decoder."""


def build_optimizer(
    parameters: Mapping[str, Parameter], optimizer: OptimizerConfig, train: TrainConfig
) -> Optimizer:
    """The optimizer of `parameters` by global name: those of graph layers in one group, the rest in another.

    Weight decay is part of the gradient in Adam and SGD, and decoupled in AdamW. Updates are elementwise, so
    splitting the parameters over stages changes no bit. No parameters at all: an optimizer that does nothing.
    """
    conv_decay = train.weight_decay if train.conv_weight_decay is None else train.conv_weight_decay
    groups = [
        {"params": [p for name, p in parameters.items() if name.startswith(CONVOLUTIONS) == conv], **decay}
        for conv, decay in (
            (True, {"weight_decay": conv_decay}),
            (False, {"weight_decay": train.weight_decay}),
        )
    ]
    # Fused: over a hundred small matrices, Adam takes 0.25 ms where a loop takes 1.4 and foreach 0.8.
    if optimizer.name == "adam":
        return torch.optim.Adam(groups, lr=train.lr, betas=optimizer.betas, eps=optimizer.eps, fused=True)
    if optimizer.name == "adamw":
        return torch.optim.AdamW(groups, lr=train.lr, betas=optimizer.betas, eps=optimizer.eps, fused=True)
    if optimizer.name == "sgd":
        return torch.optim.SGD(groups, lr=train.lr, momentum=optimizer.momentum, fused=True)
    raise InputError("optimizer.name", [f"unknown {optimizer.name!r}; choose adam, adamw or sgd"])


def build_lr_schedule(optimizer: Optimizer, train: TrainConfig) -> LambdaLR | None:
    """Stepped once an epoch, after the optimizer; None where the rate never changes."""
    if train.lr_schedule == "constant" and not train.lr_warmup:
        return None
    return LambdaLR(optimizer, lambda epoch: lr_factor(epoch, train))


def lr_factor(epoch: int, train: TrainConfig) -> float:
    """Share of `train.lr` in `epoch`, from 0: a linear rise over the warm-up, then a fall to 0 at the end.

    The last epoch still learns: zero would be reached in the one after it.
    """
    if epoch < train.lr_warmup:
        return (epoch + 1) / train.lr_warmup
    progress = (epoch - train.lr_warmup) / max(train.num_epochs - train.lr_warmup, 1)
    progress = min(progress, 1.0)
    if train.lr_schedule == "linear":
        return 1 - progress
    if train.lr_schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    return 1.0


def clip_coefficient(squared_norm: float, max_norm: float) -> float:
    """What to multiply all gradients with, so that their joint norm is at most `max_norm`; 1 where it is."""
    norm = math.sqrt(squared_norm)
    return max_norm / norm if norm > max_norm else 1.0
