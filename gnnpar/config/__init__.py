"""Configuration of a run: frozen dataclasses, composed from config groups and overrides."""

from gnnpar.config.compose import compose, group_choices
from gnnpar.config.files import config_hash, from_yaml, read_config, to_yaml
from gnnpar.config.schema import (
    BatchConfig,
    DatasetConfig,
    HaloConfig,
    HistoryConfig,
    LaunchConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PartitionConfig,
    RunConfig,
    RunDirConfig,
    TraceConfig,
    TrainConfig,
)
from gnnpar.config.section import dump_flat

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
    "TraceConfig",
    "TrainConfig",
    "compose",
    "config_hash",
    "dump_flat",
    "from_yaml",
    "group_choices",
    "read_config",
    "to_yaml",
]
