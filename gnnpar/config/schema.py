"""Every key of a run's configuration: frozen dataclasses, one a section, a docstring under each field.

The sections in `gnnpar.config.keys` are the single source of names, types, bounds and defaults;
`docs/configuration.md` is written from them, and files in `configs/` hold only what differs. A section made
in Python is checked like one from the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gnnpar.config.constraints import Matches
from gnnpar.config.keys.data import DatasetConfig, PartitionConfig
from gnnpar.config.keys.model import MemoryConfig, ModelConfig
from gnnpar.config.keys.neighbours import HaloConfig, HistoryConfig
from gnnpar.config.keys.training import LaunchConfig, OptimizerConfig, RunDirConfig, TraceConfig, TrainConfig
from gnnpar.config.keys.types import Seed
from gnnpar.config.keys.work import BatchConfig, ParallelConfig, ScheduleConfig, WeightsConfig
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
