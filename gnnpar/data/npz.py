"""Graphs in one `.npz` file, in four layouts that are in use; object arrays (pickles) are never read.

| layout | keys |
|---|---|
| gnnpar | `edge_index` [2, E], `x` or `x_indptr x_indices x_data x_shape`, `y`, masks [N] or [S, N] |
| gnn-benchmark (Shchur et al. 2018) | `adj_indptr adj_indices`, `attr_…`, `labels` |
| heterophilous-graphs (Platonov et al. 2023) | `edges` [E, 2], `node_features`, `node_labels`, masks [S, N] |
| Reddit (DGL) | a folder with `reddit_data.npz` and `reddit_graph.npz` |
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.data.raw import RawGraph
from gnnpar.data.splits import MASKS
from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph

__all__ = ["open_npz", "read_npz", "read_reddit", "save_npz"]

Arrays = Mapping[str, npt.NDArray[Any]]


@contextmanager
def open_npz(path: Path) -> Iterator[Arrays]:
    """The arrays of a file, read when asked for.

    Raises:
        InputError: truncated, corrupt, a key missing, or an array of Python objects.
    """
    title = f"dataset file {path}"
    try:
        # numpy leaves a file that it opened itself open when it turns out to be damaged.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise InputError(title, ["is a single array, not an .npz archive of them"])
            yield arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise InputError(title, [f"truncated or corrupt ({error}); fetch or copy it again"]) from error
    except KeyError as error:
        key = str(error.args[0]).removesuffix(" is not a file in the archive")
        raise InputError(
            title, [f"has no array {key!r}; see `gnnpar data info npz` for the layouts"]
        ) from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        if "pickle" in str(error) and path.read_bytes()[:1] not in (
            b"P",
            b"\x80",
        ):  # numpy takes all for pickles
            raise InputError(
                title, ["is not an .npz archive; write one with numpy.savez or gnnpar.data.save_npz"]
            ) from error
        if "pickle" in str(error):
            raise InputError(
                title, ["holds Python objects (pickles), which are never read; save plain arrays"]
            ) from error
        raise InputError(title, [f"cannot be read: {error}"]) from error


def read_npz(path: Path, name: str | None = None) -> RawGraph:
    """Read a file in the first three layouts of the table above."""
    name = name or path.stem
    with open_npz(path) as arrays:
        if "edge_index" in arrays:
            return _own(arrays, name)
        if "adj_indptr" in arrays:
            return _gnn_benchmark(arrays, name)
        if "edges" in arrays and "node_labels" in arrays:
            return _heterophilous(arrays, name)
        raise InputError(
            f"dataset file {path}",
            [
                f"no known layout in its arrays {sorted(arrays)[:12]}; "
                "gnnpar.data.save_npz writes one from a Graph"
            ],
        )


def read_reddit(folder: Path, name: str) -> RawGraph:
    """The Reddit post graph as DGL publishes it: `reddit_data.npz`, `reddit_graph.npz` (scipy COO)."""
    with open_npz(folder / "reddit_data.npz") as arrays:
        x, y, part = torch.from_numpy(arrays["feature"]), _labels(arrays["label"]), arrays["node_types"]
    with open_npz(folder / "reddit_graph.npz") as arrays:
        edges = torch.from_numpy(np.stack([arrays["col"], arrays["row"]]))
    masks = {key: torch.from_numpy(part == i + 1)[None] for i, key in enumerate(MASKS)}
    return RawGraph(name, len(y), edges, y, x, masks)


def save_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph, such as one made from PyG, so that `dataset=npz dataset.path=FILE` reads it."""
    arrays: dict[str, Any] = {
        "num_nodes": graph.num_nodes,
        "edge_index": graph.edge_index.to(graph.indices.dtype).numpy(),
        "y": graph.y.numpy(),
        "num_classes": graph.num_classes,
    }
    x = graph.x
    if isinstance(x, SparseRows):
        first, last = int(x.indptr[0]), int(x.indptr[-1])
        arrays |= {"x_indptr": (x.indptr - first).numpy(), "x_shape": np.array(x.shape)}
        arrays |= {"x_indices": x.indices[first:last].numpy(), "x_data": x.values[first:last].numpy()}
    elif x is not None:
        arrays["x"] = x.numpy()
    if bool(graph.train_mask.any()):
        arrays |= {key: getattr(graph, key).numpy() for key in MASKS}
    for key in ("edge_weight", "edge_attr"):
        if getattr(graph, key) is not None:
            arrays[key] = getattr(graph, key).numpy()
    np.savez_compressed(path, **arrays)


def _own(arrays: Arrays, name: str) -> RawGraph:
    edges = arrays["edge_index"]
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise InputError(
            f"dataset {name}", [f"edge_index: must be integers [2, E], is {edges.dtype} {edges.shape}"]
        )
    if edges.dtype.kind == "u":
        edges = edges.astype(np.int64)
    y = _labels(arrays["y"])
    num_nodes = int(arrays["num_nodes"]) if "num_nodes" in arrays else len(y)
    x: Tensor | SparseRows | None = None
    if "x_indptr" in arrays:
        x = _sparse(arrays, "x_")
    elif "x" in arrays:
        x = _numbers(arrays["x"])
        x = x.unsqueeze(1) if x.dim() == 1 else x
    return RawGraph(
        name,
        num_nodes,
        torch.from_numpy(edges),
        y,
        x,
        _masks(arrays),
        int(arrays["num_classes"]) if "num_classes" in arrays else None,
        _numbers(arrays["edge_weight"]) if "edge_weight" in arrays else None,
        _numbers(arrays["edge_attr"]) if "edge_attr" in arrays else None,
    )


def _gnn_benchmark(arrays: Arrays, name: str) -> RawGraph:
    indptr, indices = arrays["adj_indptr"], arrays["adj_indices"]
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    loop = row == indices  # left out, as every user of these files does
    edges = torch.from_numpy(np.stack([row[~loop], indices[~loop]]))
    y = _labels(arrays["labels"])
    x = _sparse(arrays, "attr_") if "attr_indptr" in arrays else _numbers(arrays["attr_matrix"])
    return RawGraph(name, len(y), edges, y, x, inverse_edges=True)


def _heterophilous(arrays: Arrays, name: str) -> RawGraph:
    y = _labels(arrays["node_labels"])
    edges = torch.from_numpy(np.ascontiguousarray(arrays["edges"].T))
    return RawGraph(
        name, len(y), edges, y, _numbers(arrays["node_features"]), _masks(arrays), inverse_edges=True
    )


def _masks(arrays: Arrays) -> dict[str, Tensor]:
    """Ten splits where the file has them, else its one split, else none."""
    for plural in ("s", ""):
        if f"train_mask{plural}" in arrays:
            masks = {key: torch.from_numpy(arrays[key + plural].astype(bool)) for key in MASKS}
            return {key: mask[None] if mask.dim() == 1 else mask for key, mask in masks.items()}
    return {}


def _labels(y: npt.NDArray[Any]) -> Tensor:
    """`[N]` int64, -1 for NaN; multi-labels as float."""
    if y.ndim == 2 and y.shape[1] > 1:
        return torch.from_numpy(y.astype(np.float32))
    y = y.reshape(-1)
    if y.dtype.kind == "f":
        whole = np.where(np.isnan(y), -1, y)
        if not np.array_equal(whole, np.floor(whole)):
            raise InputError("labels", ["must be integers (classes) or [N, T] of 0 and 1"])
        y = whole
    return torch.from_numpy(y.astype(np.int64))


def _numbers(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _sparse(arrays: Arrays, prefix: str) -> SparseRows:
    indptr = torch.from_numpy(arrays[prefix + "indptr"].astype(np.int64))
    indices, values = arrays[prefix + "indices"], _numbers(arrays[prefix + "data"])
    rising = int(indptr[0]) == 0 and not bool((indptr[1:] < indptr[:-1]).any())
    if not rising or int(indptr[-1]) != indices.size or indices.size != len(values):
        raise InputError(
            "sparse features", [f"{prefix}indptr, {prefix}indices and {prefix}data do not fit together"]
        )
    num_columns = int(arrays[prefix + "shape"][1])
    # SparseRows promises ascending columns within a row; files need not keep that.
    row = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr[1:] - indptr[:-1])
    key = row * num_columns + torch.from_numpy(indices.astype(np.int64))
    if bool((key[1:] < key[:-1]).any()):
        order = torch.argsort(key, stable=True)
        return SparseRows(
            indptr, torch.from_numpy(indices.astype(np.int32))[order], values[order], num_columns
        )
    return SparseRows(indptr, torch.from_numpy(indices.astype(np.int32)), values, num_columns)
