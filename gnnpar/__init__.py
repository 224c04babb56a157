"""gnnpar: train deep graph neural networks in parallel, layers in pipeline stages and vertices in chunks.

Importing it needs torch and numpy only; names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnpar.config import RunConfig, compose
    from gnnpar.data import from_dgl, from_pyg
    from gnnpar.errors import GnnparError, InputError, RunError
    from gnnpar.graph import Graph, SparseRows
    from gnnpar.model import Branch, Layer, LayerGraph, LayerStack, Pull, Push, build_model
    from gnnpar.partition import Partition, partition_graph
    from gnnpar.train.run import RunResult, fit, run

__all__ = [
    "Branch",
    "GnnparError",
    "Graph",
    "InputError",
    "Layer",
    "LayerGraph",
    "LayerStack",
    "Partition",
    "Pull",
    "Push",
    "RunConfig",
    "RunError",
    "RunResult",
    "SparseRows",
    "build_model",
    "compose",
    "fit",
    "from_dgl",
    "from_pyg",
    "partition_graph",
    "run",
]

_HOMES = {
    "gnnpar.config": ("RunConfig", "compose"),
    "gnnpar.data": ("from_dgl", "from_pyg"),
    "gnnpar.errors": ("GnnparError", "InputError", "RunError"),
    "gnnpar.graph": ("Graph", "SparseRows"),
    "gnnpar.model": ("Branch", "Layer", "LayerGraph", "LayerStack", "Pull", "Push", "build_model"),
    "gnnpar.partition": ("Partition", "partition_graph"),
    "gnnpar.train.run": ("RunResult", "fit", "run"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'gnnpar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
