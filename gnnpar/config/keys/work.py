"""Keys of the work: who does it, what its units are, in which order, with which weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from gnnpar.config.constraints import AtLeast, Between
from gnnpar.config.keys.types import NaturalInt, PositiveInt
from gnnpar.config.section import Section

__all__ = ["BatchConfig", "ParallelConfig", "ScheduleConfig", "WeightsConfig"]


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(Section):
    """Who computes what."""

    section: ClassVar[str] = "parallel"

    stages: PositiveInt = 1
    """Pipeline stages, one process each (see `ways`): runs of consecutive layers."""
    layers_per_stage: tuple[PositiveInt, ...] | None = None
    """Graph layers of each stage; null balances the stages by measured cost of the layers."""
    ways: PositiveInt | tuple[PositiveInt, ...] = 1
    """Processes that share one of `stages`, each over its part of every micro-batch: one number for all, or
    one each, such as [2, 1]. Micro-batches are then cut further, into as many parts as the least common
    multiple of these numbers; parts of one micro-batch read each other's rows, where they are chunks."""
    split: Literal["vertices", "features"] = "vertices"
    """What the ways of a stage split where they aggregate: vertices, with rows exchanged along the edges
    between them; or features, each way summing over all edges for its slice of every row (dense algebra stays
    split by vertices). Features need `batch.num_chunks=1` and fixed linear aggregations."""
    replicas: PositiveInt = 1
    """Copies of the whole pipeline, each with micro-batches of its own; their gradients are summed before
    every update. For clusters and mini-batches, which read nothing of each other."""


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Section):
    """What one micro-batch is."""

    section: ClassVar[str] = "batch"

    kind: Literal["chunks", "clusters", "joined", "neighbour", "layerwise", "saint", "shadow"] = "chunks"
    """Chunks read each other's rows, of this step or from history. Clusters are independent: training leaves
    out the edges between them (evaluation does not). The others are mini-batches, drawn anew in every step:
    several clusters joined with the edges between them; some neighbours of every vertex; some vertices a
    layer; a subgraph of random draws (GraphSAINT); a small subgraph around every vertex (ShaDow)."""
    num_chunks: PositiveInt = 1
    """Chunks (micro-batches) that the vertices are cut into; 1 is full-batch training."""
    joined: PositiveInt = 1
    """Chunks drawn to run together as one micro-batch: they read each other's current rows, and gradients
    between them are exact. Divides `num_chunks`. `joined`: clusters of one mini-batch, any number."""
    steps_per_epoch: PositiveInt = 1
    """Optimizer updates of an epoch, each over an equal share of its micro-batches; chunks outside the share
    are read from history. Divides `num_chunks` / `joined`."""
    shuffle: bool = True
    """Draw a new order of the chunks (of mini-batches: of their seeds) each epoch."""
    size: PositiveInt = 512
    """Mini-batches: training vertices of one; of `saint`: draws (of `joined` see `joined`)."""
    per_step: PositiveInt = 1
    """Mini-batches: how many of them are the micro-batches of one step, on each replica."""
    fanouts: tuple[Annotated[int, AtLeast(-1)], ...] | None = None
    """One number a graph layer, the last layer's first. `neighbour`: in-edges drawn of every vertex, -1 for
    all; `layerwise`: vertices drawn for the layer."""
    replace: bool = False
    """`neighbour`: draw with replacement."""
    labor: bool = False
    """`neighbour`: rows that share neighbours draw the same ones (LABOR-0), so fewer vertices are read."""
    importance: Literal["fastgcn", "ladies"] = "ladies"
    """`layerwise`: what probabilities follow from: the whole graph, or the rows that read the layer (weights
    are then normalised by row, as in LADIES' paper)."""
    draws: Literal["node", "edge", "walk"] = "walk"
    """`saint`: what is drawn. As many draws as reach N vertices make an epoch."""
    walk_length: PositiveInt = 2
    """`saint`: steps of a random walk."""
    walk_rounds: PositiveInt = 50
    """`saint`: walks from every vertex from which the probabilities of walks are estimated, once."""
    depth: PositiveInt = 2
    """`shadow`: hops around a vertex."""
    budget: Annotated[int, AtLeast(-1)] = 10
    """`shadow`: neighbours that a vertex adds to the subgraph; -1: all."""
    prefetch: NaturalInt = 2
    """Mini-batches: steps drawn ahead by a thread; 0: draw each when it is needed."""

    @property
    def sampled(self) -> bool:
        """Whether micro-batches are drawn anew each step."""
        return self.kind not in ("chunks", "clusters")

    @property
    def independent(self) -> bool:
        """Whether micro-batches read nothing of each other."""
        return self.kind != "chunks"

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one step."""
        if self.sampled:
            return self.per_step
        return self.num_chunks // (self.joined * self.steps_per_epoch)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Section):
    """In which order stages work off the micro-batches."""

    section: ClassVar[str] = "schedule"

    name: str = "gpipe"
    """Family, as `gnnpar systems` lists them."""
    chunks: Annotated[int, AtLeast(1)] | None = None
    """Interleaved and looped families, zb_h1: stages per rank; null: the family's own."""
    waves: Annotated[int, AtLeast(1)] | None = None
    """hanayo: waves; null: the family's own."""
    advance: NaturalInt | None = None
    """one_f_one_b: forwards run ahead (AvgPipe); null: none."""


@dataclass(frozen=True, kw_only=True)
class WeightsConfig(Section):
    """Which weights a pass sees, where stages update without waiting for each other."""

    section: ClassVar[str] = "weights"

    policy: Literal[
        "flush", "live", "stash", "vertical", "double", "spectrain", "xpipe", "pipeoptim", "pipemare", "local"
    ] = "flush"
    """`flush`: updates wait for all passes. Without a flush (`schedule.name=async_1f1b`), passes read the
    newest weights (`live`); backward those of its forward (`stash`), of the version the first stage had
    (`vertical`), or of the one before (`double`); predicted ones (`spectrain`, `xpipe`, `pipeoptim`); or
    backward the newest less an estimate of what changed (`pipemare`). `local`: losses of their own for all
    stages (`schedule.name=local_learning`)."""
    distance: Literal["paper", "exact"] = "paper"
    """How far `spectrain`, `xpipe` and `pipeoptim` predict: by their published formula, or as many updates as
    the schedule shows."""
    decay: Annotated[float, Between(0, 1, open_end=True)] = 0.135
    """`pipemare`: weight that an average of the updates keeps over the delay of a stage (D)."""
    horizon: NaturalInt = 0
    """`pipemare`: updates over which learning rates rise from what their delay allows to `train.lr` (T1)."""
    sync_epochs: NaturalInt = 0
    """First epochs whose updates do wait for all passes (PipeMare's T3)."""
    head: Literal["linear", "mlp"] = "linear"
    """`local`: what a stage's own loss looks at its rows through."""
