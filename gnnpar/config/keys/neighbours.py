"""Keys of what is read of neighbours elsewhere: from histories, from other ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from gnnpar.config.constraints import Above, Between
from gnnpar.config.keys.types import NaturalInt, NonNegative, PositiveInt, Probability
from gnnpar.config.section import Section

__all__ = ["HaloConfig", "HistoryConfig"]


@dataclass(frozen=True, kw_only=True)
class HistoryConfig(Section):
    """What a chunk reads for neighbours in chunks that have not run yet in this step."""

    section: ClassVar[str] = "history"

    mode: Literal["latest", "snapshot", "drop"] = "latest"
    """The last embedding computed; the one of the last snapshot; or nothing (the edge is left out)."""
    period: PositiveInt = 20
    """Steps between snapshots, for `mode=snapshot`."""
    gamma: NonNegative = 1.0
    """Factor γ on gradients from chunks later in the step: 1 exact with histories held constant, 2 doubles
    them to compensate for the missing ones, 0 stops them."""
    control_variates: bool = False
    """Mini-batches of `neighbour` or `layerwise`: correct sampled sums by what all neighbours had when they
    were last in a batch (VR-GCN)."""
    warmup_steps: NaturalInt = 1
    """First steps that run as a single exact micro-batch, so that every history has been written; each is an
    epoch. 0: a forward pass over the whole graph, without an update, writes them."""
    refresh_every: PositiveInt | None = None
    """Steps from one refresh of the histories to the next: an exact forward pass over the whole graph,
    without an update; null: none."""
    compensate: bool = False
    """With several steps an epoch: chunks outside a step send it the gradients of the step that they last
    ran in, instead of none (LMC)."""
    store: Literal["memory", "disk"] = "memory"
    """Where histories are kept: in memory, or in memory-mapped files, whose rows take memory while in use."""
    dir: str | None = None
    """Folder of these files; null: in the run directory, until the run ends."""


@dataclass(frozen=True, kw_only=True)
class HaloConfig(Section):
    """How the ways of a stage read each other's rows, where their chunks do (`parallel.ways`)."""

    section: ClassVar[str] = "halo"

    mode: Literal["exact", "stale", "sampled", "bounded", "quantised"] = "exact"
    """As they are; as they were one step before, so that messages hide behind computation (PipeGCN); a random
    sample of them (BNS-GCN); as they were last sent, under a bound (SANCUS); or rounded to a few bits
    (AdaQP)."""
    smooth_features: Probability = 0.0
    """`stale`: decay of a running mean that takes the place of the rows received; 0 for none."""
    smooth_gradients: Probability = 0.0
    """`stale`: the same for gradients."""
    rate: Annotated[float, Above(0), Between(0, 1)] = 1.0
    """`sampled`: chance of each row to be sent to a way that reads it, drawn in every step; 1 is exact."""
    period: PositiveInt = 1
    """`bounded`: steps after which rows are sent again in any case; 1 is exact."""
    bound: NonNegative | None = None
    """`bounded`: relative change above which rows are sent again before that; null: never. With dropout p,
    rows change by about √(2p) in every step."""
    bits: Literal[8, 4, 2] | None = None
    """`quantised`: of each number on its way, forward and backward."""
