"""A chunked graph as a folder of arrays, so that all ranks of a host map the same pages."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnpar.batch.chunked import ChunkedGraph
from gnnpar.graph import Graph
from gnnpar.graph.features import SparseRows

__all__ = ["load_chunked", "save_chunked"]

_SPARSE = ("indptr", "indices", "values")


def save_chunked(chunked: ChunkedGraph, folder: Path) -> None:
    """Write `folder` (which must not exist)."""
    folder.mkdir(parents=True)
    graph = chunked.graph
    plain: dict[str, object] = {"offsets": chunked.offsets}
    for field in fields(Graph):
        value = getattr(graph, field.name)
        if isinstance(value, Tensor):
            np.save(folder / f"{field.name}.npy", value.numpy())
        elif isinstance(value, SparseRows):
            plain["x_columns"] = value.num_columns
            for name in _SPARSE:
                np.save(folder / f"x_{name}.npy", getattr(value, name).numpy())
        elif value is not None:
            plain[field.name] = value
    (folder / "chunked.json").write_text(json.dumps(plain))


def load_chunked(folder: Path) -> ChunkedGraph:
    """Map what `save_chunked` wrote; pages are shared until someone writes to them."""
    plain = json.loads((folder / "chunked.json").read_text())
    offsets = tuple(plain.pop("offsets"))
    if "x_columns" in plain:
        indptr, indices, values = (_map(folder / f"x_{name}.npy") for name in _SPARSE)
        plain["x"] = SparseRows(indptr, indices, values, plain.pop("x_columns"))
    for field in fields(Graph):
        path = folder / f"{field.name}.npy"
        if path.exists():
            plain[field.name] = _map(path)
    plain.setdefault("x", None)
    return ChunkedGraph(Graph(**plain), offsets)


def _map(path: Path) -> Tensor:
    # An empty file cannot be mapped. Copy-on-write, because torch has no read-only tensors.
    array = np.load(path, mmap_mode="c") if path.stat().st_size > 128 + 64 else np.load(path)
    return torch.from_numpy(array)
