"""Every key of a run's configuration: frozen dataclasses, one a section, a docstring under each field.

This file is the single source of names, types, bounds and defaults; `docs/configuration.md` is written from
it, and files in `configs/` hold only what differs. A section made in Python is checked like one from the
command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from gnnpar.config.constraints import Above, AtLeast, Between, Matches
from gnnpar.config.section import Section

__all__ = [
    "BatchConfig",
    "DatasetConfig",
    "HaloConfig",
    "HistoryConfig",
    "LaunchConfig",
    "MemoryConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PartitionConfig",
    "RunConfig",
    "RunDirConfig",
    "ScheduleConfig",
    "TraceConfig",
    "TrainConfig",
    "WeightsConfig",
]

PositiveInt = Annotated[int, AtLeast(1)]
NaturalInt = Annotated[int, AtLeast(0)]
Seed = Annotated[int, Between(0, 2**63 - 1)]
NonNegative = Annotated[float, AtLeast(0)]
Positive = Annotated[float, Above(0)]
Fraction = Annotated[float, Between(0, 1)]
Probability = Annotated[float, Between(0, 1, open_end=True)]


@dataclass(frozen=True, kw_only=True)
class DatasetConfig(Section):
    """The graph: where it comes from and how it is read."""

    section: ClassVar[str] = "dataset"

    name: str = "digits"
    """Name of the dataset: the recipe that is read, and the name in tables and run directories."""
    kind: Literal["builtin", "npz", "ogb", "pyg", "generated", "memory"] = "builtin"
    """Reader: built in, an npz file, an OGB raw folder, a PyG data object saved on disk, the seeded
    generator, or a graph handed over from Python."""
    path: str | None = None
    """File or folder that is read, for the kinds that read one."""
    symmetrize: bool = False
    """Add the reverse of every edge, without duplicates."""
    split: NaturalInt = 0
    """Which of the dataset's splits; where it has none, the seed of a random 60/20/20 split."""
    normalize: Literal["none", "row"] = "none"
    """`row` divides each vertex's features by their sum, as the citation graphs are commonly used."""
    features: Literal["auto", "given", "degree", "random"] = "auto"
    """Vertex features where the files hold none: a one-hot of log2(degree) with a warning, an error, the
    one-hot without a warning, or random numbers."""
    seed: NaturalInt = 0
    """Generator: seed of the graph."""
    num_nodes: PositiveInt = 10_000
    """Generator: vertices."""
    num_classes: Annotated[int, AtLeast(2)] = 8
    """Generator: classes, planted as communities."""
    num_features: PositiveInt = 64
    """Generator: features of a vertex."""
    mean_degree: Positive = 16.0
    """Generator: mean degree, reverse edges included."""
    exponent: Annotated[float, Above(2)] = 2.5
    """Generator: exponent of the power law that degrees follow."""
    homophily: Fraction = 0.8
    """Generator: share of edges within a class."""
    signal: NonNegative = 1.0
    """Generator: distance of the classes' feature means, in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network: an encoder, `num_layers` graph layers of equal width, a decoder."""

    section: ClassVar[str] = "model"

    name: Literal["gcn", "sage", "gin", "gat", "gcnii", "resgcn", "gen", "custom"] = "gcnii"
    """Kind of graph layer; `custom` is a model handed over from Python."""
    num_layers: PositiveInt = 32
    """Graph layers, the encoder and the decoder not counted."""
    hidden: PositiveInt = 64
    """Width of every graph layer."""
    dropout: Probability = 0.5
    """Share of elements dropped before each layer."""
    alpha: Fraction = 0.1
    """GCNII: weight of the initial residual (α, §3 of the paper)."""
    theta: NonNegative = 0.5
    """GCNII: strength of the weight matrices, β_l = log(θ / l + 1) (λ in the paper)."""
    heads: PositiveInt = 1
    """GAT: attention heads; `hidden` is the width of all together."""
    attention_dropout: Probability = 0.0
    """GAT: share of attention weights dropped."""
    aggregation: Literal["mean", "sum"] = "mean"
    """GraphSAGE: how neighbours are combined."""
    temperature: Positive = 1.0
    """GEN: inverse temperature of its softmax aggregation, at the start of training."""
    norm: Literal["none", "layer", "rms", "batch"] = "none"
    """Normalisation in each layer. `batch` uses the rows that run together: it depends on chunking."""
    jumping_knowledge: Literal["none", "cat", "max", "sum"] = "none"
    """What the decoder reads: the last layer, or all layers concatenated, their maximum, or their sum."""


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
    """`sampled`: chance of each row to be sent to a way that reads it, drawn in every step."""
    period: PositiveInt = 1
    """`bounded`: steps after which rows are sent again in any case."""
    bound: NonNegative | None = None
    """`bounded`: relative change above which rows are sent again before that; null: never. With dropout p,
    rows change by about √(2p) in every step."""
    bits: Literal[8, 4, 2] | None = None
    """`quantised`: of each number on its way, forward and backward."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Section):
    """What is kept from forward to backward."""

    section: ClassVar[str] = "memory"

    recompute: bool = False
    """Keep aggregation inputs and outputs only, and compute everything else again in backward."""
    sequential: bool = False
    """Of `parallel.ways`, each keeps rows of its own vertices only, and fetches those of others one way at a
    time, whenever they are read (SAR). Needs `batch.num_chunks=1`."""


@dataclass(frozen=True, kw_only=True)
class PartitionConfig(Section):
    """How the vertices are cut into chunks."""

    section: ClassVar[str] = "partition"

    path: str | None = None
    """File that `gnnpar partition … out=FILE` wrote of this graph; null: cut it as the keys below say."""
    method: Literal["metis", "random", "range", "ldg", "fennel", "mtkahypar", "kahip"] = "metis"
    """Partitioner. `mtkahypar` and `kahip` need the extra `partition`."""
    seed: NaturalInt = 0
    """Seed of the partitioner."""
    inner_order: Literal["metis", "none", "rcm"] = "metis"
    """Order of the vertices inside a chunk: by a fine METIS partition, as they come, or Cuthill-McKee."""
    cost_vertex: NonNegative = 1.0
    """Cost of a vertex, a in a + b · degree; chunks are balanced by it."""
    cost_edge: NonNegative = 0.05
    """Cost of an in-edge, b in a + b · degree."""


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


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """A whole run. Made by `gnnpar.config.compose` from config groups and overrides, or by hand."""

    seed: Seed = 0
    """Seed of the parameters, of dropout and of the order of the chunks."""
    device: Annotated[str, Matches(("cpu", "cuda"))] = "cpu"
    """Where tensors live: `cpu`, `cuda` (ranks spread over the host's GPUs) or `cuda:N`."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of parameters and activations."""
    system: str = "full_batch"
    """Name of the preset that the keys below started from."""
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    halo: HaloConfig = field(default_factory=HaloConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    run: RunDirConfig = field(default_factory=RunDirConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
