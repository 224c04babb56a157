"""Keys of the training loop, its processes, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnpar.config.keys.types import NaturalInt, NonNegative, Positive, PositiveInt, Probability
from gnnpar.config.section import Section

__all__ = ["LaunchConfig", "OptimizerConfig", "RunDirConfig", "TraceConfig", "TrainConfig"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """The training loop."""

    section: ClassVar[str] = "train"

    num_epochs: PositiveInt = 200
    """Epochs; one epoch is one pass over all labelled vertices, in `batch.steps_per_epoch` steps, or in as
    many as it takes to deal out all seeds of mini-batches."""
    lr: Positive = 0.01
    """Learning rate."""
    eval_every: PositiveInt = 5
    """Epochs between exact evaluations; the last epoch is always evaluated."""
    weight_decay: NonNegative = 5e-4
    """L2 penalty of all parameters; of encoder and decoder alone where `conv_weight_decay` is given."""
    conv_weight_decay: NonNegative | None = None
    """L2 penalty of the graph layers; null: `weight_decay`."""
    grad_clip: Positive | None = None
    """Largest norm of the gradient over all stages; null: no clipping."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls to zero over the epochs, if it does."""
    lr_warmup: NaturalInt = 0
    """First epochs over which the learning rate rises linearly."""
    select: Literal["metric", "loss"] = "metric"
    """Which epoch is the best: the one of the highest validation metric, or of the lowest validation loss."""
    patience: PositiveInt | None = None
    """Stop after this many epochs without a better one by `select`; null: never."""
    metric: Literal["accuracy", "rocauc"] = "accuracy"
    """Metric of evaluation; `rocauc`: two classes, or the mean over columns of multi-label targets."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """The optimizer."""

    section: ClassVar[str] = "optimizer"

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """Kind of optimizer."""
    momentum: Probability = 0.0
    """SGD: momentum."""
    betas: tuple[Probability, Probability] = (0.9, 0.999)
    """Adam, AdamW: decay of the running means of the gradient and of its square."""
    eps: Positive = 1e-8
    """Adam, AdamW: term added to the denominator."""


@dataclass(frozen=True, kw_only=True)
class LaunchConfig(Section):
    """Processes."""

    section: ClassVar[str] = "launch"

    threads: PositiveInt | None = None
    """Threads of each process; null: cores ÷ processes."""
    timeout_s: Positive = 300.0
    """Deadline of every wait for another process, in seconds."""


@dataclass(frozen=True, kw_only=True)
class RunDirConfig(Section):
    """Where the run writes."""

    section: ClassVar[str] = "run"

    dir: str | None = None
    """Run directory; null: results/runs/<time>-<dataset>-<system>-<hash>."""
    overwrite: bool = False
    """Replace what an earlier run left in `run.dir`."""


@dataclass(frozen=True, kw_only=True)
class TraceConfig(Section):
    """What is recorded beside the metrics."""

    section: ClassVar[str] = "trace"

    tensorboard: bool = True
    """Write TensorBoard events."""
    history_error: bool = False
    """At every evaluation, also measure how far histories are from the exact embeddings of the parameters of
    that moment: one more forward pass."""
    enabled: bool = False
    """Record what every rank does and when, for `gnnpar report` and Perfetto."""
    every: PositiveInt = 1
    """Epochs from one that is recorded to the next; more keep long traces small."""
