"""OGB node property datasets from their raw files (csv.gz or binary), never a prompt, no pickle.

Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020. N vertices, E edges
stored in the files, F features, K edge features, T tasks.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.data.home import require_memory
from gnnpar.data.raw import RawGraph, RowBlocks
from gnnpar.data.splits import MASKS
from gnnpar.data.tables import csv_array, csv_blocks, csv_width, npz_blocks, npz_shape
from gnnpar.errors import Faults, InputError

__all__ = ["OgbFacts", "find_ogb_folder", "ogb_facts", "ogb_files", "read_ogb"]

Array = npt.NDArray[Any]
_SPLIT_FILES = dict(zip(MASKS, ("train", "valid", "test"), strict=True))


@dataclass(frozen=True)
class OgbFacts:
    """What OGB's own index says of a dataset; for one it does not know, what its files show.

    Attributes:
        inverse_edges: its recipe adds the reverse of every edge.
        scheme: folder under `split/`; None = the only one there.
        num_classes: None = from the labels.
    """

    inverse_edges: bool = False
    scheme: str | None = None
    num_classes: int | None = None
    heterogeneous: bool = False


def ogb_facts(name: str) -> OgbFacts:
    """Look up the index file of the installed `ogb` package, without importing it."""
    spec = importlib.util.find_spec("ogb")
    if spec is None or spec.origin is None:
        return OgbFacts()
    index = Path(spec.origin).parent / "nodeproppred" / "master.csv"
    if not index.exists():
        return OgbFacts()
    with open(index, newline="") as file:
        facts = {row[""]: row[name] for row in csv.DictReader(file) if name in row}
    if not facts:
        return OgbFacts()
    single = facts["task type"] == "multiclass classification"
    return OgbFacts(
        inverse_edges=facts["add_inverse_edge"] == "True",
        scheme=facts["split"],
        num_classes=int(facts["num classes"]) if single else None,
        heterogeneous=facts["is hetero"] == "True",
    )


def find_ogb_folder(path: Path, name: str) -> Path | None:
    """The folder that holds `raw/` and `split/`: `path`, or its `arxiv`, `ogbn_arxiv`, `papers100M-bin` …"""
    short = name.removeprefix("ogbn-")
    candidates = [path] + [path / sub for sub in (name, name.replace("-", "_"), short, f"{short}-bin")]
    return next((folder for folder in candidates if (folder / "raw").is_dir()), None)


def ogb_files(folder: Path) -> list[Path]:
    """Every file the reader looks at."""
    return sorted(file for sub in ("raw", "split") for file in (folder / sub).rglob("*z") if file.is_file())


def read_ogb(folder: Path, name: str, *, symmetrize: bool = False) -> RawGraph:
    """Read `folder/raw` and `folder/split`. Features stay on disk until they are stored.

    Args:
        symmetrize: whether the recipe will, for the estimate of memory.

    Raises:
        InputError: no OGB node dataset, files missing, truncated or of other lengths, too little memory.
    """
    facts = ogb_facts(name)
    if facts.heterogeneous:
        raise InputError(
            f"dataset {name}", ["several types of vertices are not supported; choose another dataset"]
        )
    binary = (folder / "raw" / "data.npz").exists()
    source = _Binary(folder) if binary else _Csv(folder)
    n, e, k = source.num_nodes, source.num_edges, source.num_edge_features
    directed = e * (2 if symmetrize or facts.inverse_edges else 1)
    require_memory(directed * (40 + 12 * k) + 8 * e + 16 * n, f"converting dataset {name}")
    x, edge_attr = source.x(), source.edge_attr()
    return RawGraph(
        name,
        n,
        source.edge_index(),
        _labels(source.labels()),
        x,
        _read_split(folder, facts.scheme, n, name),
        facts.num_classes,
        edge_attr=edge_attr,
        inverse_edges=facts.inverse_edges,
        edge_features_as_x=x is None and edge_attr is not None,
    )


class _Csv:
    """The layout of gzipped tables."""

    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.num_nodes = _one_graph(csv_blocks(self.raw / "num-node-list.csv.gz", np.int64), folder)
        self.num_edges = _one_graph(csv_blocks(self.raw / "num-edge-list.csv.gz", np.int64), folder)
        self._attr = self.raw / "edge-feat.csv.gz"
        self.num_edge_features = csv_width(self._attr) if self._attr.exists() else 0

    def edge_index(self) -> Tensor:
        table = csv_array(self.raw / "edge.csv.gz", self.num_edges, np.int32)
        if table.shape[1] != 2:
            raise InputError(
                f"dataset file {self.raw / 'edge.csv.gz'}", [f"has {table.shape[1]} columns instead of 2"]
            )
        return torch.from_numpy(np.ascontiguousarray(table.T))

    def edge_attr(self) -> Tensor | None:
        if not self.num_edge_features:
            return None
        return torch.from_numpy(csv_array(self._attr, self.num_edges, np.float32))

    def x(self) -> RowBlocks | None:
        path = self.raw / "node-feat.csv.gz"
        if not path.exists():
            return None
        return RowBlocks((self.num_nodes, csv_width(path)), lambda: csv_blocks(path, np.float32))

    def labels(self) -> Array:
        return csv_array(self.raw / "node-label.csv.gz", self.num_nodes, np.float64)


class _Binary:
    """The layout of papers100M: `data.npz` and `node-label.npz`."""

    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.data = self.raw / "data.npz"
        self.num_nodes = _one_graph(npz_blocks(self.data, "num_nodes_list"), folder)
        self.num_edges = _one_graph(npz_blocks(self.data, "num_edges_list"), folder)
        shape = npz_shape(self.data, "edge_feat")
        self.num_edge_features = shape[1] if shape else 0

    def edge_index(self) -> Tensor:
        return torch.from_numpy(self._load("edge_index", (2, self.num_edges), np.int32))

    def edge_attr(self) -> Tensor | None:
        if not self.num_edge_features:
            return None
        return torch.from_numpy(self._load("edge_feat", (self.num_edges, self.num_edge_features), np.float32))

    def x(self) -> RowBlocks | None:
        shape = npz_shape(self.data, "node_feat")
        if shape is None:
            return None

        def blocks() -> Iterator[Array]:
            return (
                block.reshape(-1, shape[1]).astype(np.float32) for block in npz_blocks(self.data, "node_feat")
            )

        return RowBlocks((shape[0], shape[1]), blocks)

    def labels(self) -> Array:
        path = self.raw / "node-label.npz"
        shape = npz_shape(path, "node_label")
        if shape is None or shape[0] != self.num_nodes:
            raise InputError(
                f"dataset file {path}", [f"node_label has shape {shape} for {self.num_nodes} vertices"]
            )
        return np.concatenate(list(npz_blocks(path, "node_label"))).reshape(self.num_nodes, -1)

    def _load(self, key: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        if npz_shape(self.data, key) != shape:
            raise InputError(
                f"dataset file {self.data}", [f"{key}: {npz_shape(self.data, key)} instead of {shape}"]
            )
        out: Array = np.empty(shape, dtype)
        flat, start = out.reshape(-1), 0
        for block in npz_blocks(self.data, key):
            flat[start : start + block.size] = block
            start += block.size
        return out


def _one_graph(blocks: Iterator[Array], folder: Path) -> int:
    counts = np.concatenate([block.reshape(-1) for block in blocks])
    if counts.size != 1:
        raise InputError(
            f"dataset folder {folder}", [f"holds {counts.size} graphs; node classification needs one"]
        )
    return int(counts[0])


def _labels(table: Array) -> Tensor:
    if table.shape[1] > 1:
        return torch.from_numpy(table.astype(np.float32))
    return torch.from_numpy(np.where(np.isnan(table[:, 0]), -1, table[:, 0]).astype(np.int64))


def _read_split(folder: Path, scheme: str | None, num_nodes: int, name: str) -> dict[str, Tensor]:
    root = folder / "split"
    schemes = sorted(sub.name for sub in root.iterdir() if sub.is_dir()) if root.is_dir() else []
    if scheme is None and len(schemes) == 1:
        scheme = schemes[0]
    if scheme not in schemes:
        raise InputError(
            f"dataset {name}", [f"no split {scheme or ''} in {root}, which has {schemes}; fetch it again"]
        )
    faults, masks = Faults(f"dataset {name}"), {}
    for key, stem in _SPLIT_FILES.items():
        path = root / scheme / f"{stem}.csv.gz"
        ids = np.concatenate([block.reshape(-1) for block in csv_blocks(path, np.int64)])
        mask = torch.zeros(1, num_nodes, dtype=torch.bool)
        outside = (ids < 0) | (ids >= num_nodes)
        if outside.any():
            faults.add(f"{path}: {int(outside.sum())} ids outside 0..{num_nodes - 1}; fetch it again")
        mask[0, torch.from_numpy(ids[~outside])] = True
        masks[key] = mask
    faults.raise_if_any()
    return masks
