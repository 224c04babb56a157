"""Graphs as GraphSAINT publishes them (Flickr, Reddit, Yelp …): a folder of plain arrays and JSON.

Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020. Files: `adj_full.npz`
(scipy CSR), `feats.npy` (optional here), `class_map.json`, `role.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnpar.data.npz import open_npz
from gnnpar.data.raw import RawGraph
from gnnpar.errors import InputError

__all__ = ["SAINT_FILES", "read_saint"]

SAINT_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")


def read_saint(folder: Path, name: str) -> RawGraph:
    """Read the folder. Class lists (multi-label) become `[N, T]` floats.

    Raises:
        InputError: a file missing, truncated or of another content.
    """
    with open_npz(folder / "adj_full.npz") as arrays:
        indptr, indices = arrays["indptr"], arrays["indices"]
    num_nodes = indptr.size - 1
    row = np.repeat(np.arange(num_nodes), np.diff(indptr))
    edges = torch.from_numpy(np.stack([row, indices]).astype(np.int64))
    try:
        classes, role = (json.loads((folder / file).read_text()) for file in ("class_map.json", "role.json"))
        labels = np.array([classes.get(str(v), -1) for v in range(num_nodes)])
        masks = {}
        for key, part in (("train_mask", "tr"), ("val_mask", "va"), ("test_mask", "te")):
            mask = torch.zeros(1, num_nodes, dtype=torch.bool)
            mask[0, torch.tensor(role[part], dtype=torch.int64)] = True
            masks[key] = mask
        x = _features(folder / "feats.npy")
    except (OSError, ValueError, KeyError, IndexError, EOFError) as error:
        raise InputError(
            f"dataset folder {folder}", [f"class_map.json, role.json or feats.npy: {error!r}"]
        ) from error
    y = torch.from_numpy(labels.astype(np.int64 if labels.ndim == 1 else np.float32))
    return RawGraph(name, num_nodes, edges, y, x, masks)


def _features(path: Path) -> Any:
    if not path.exists():
        return None
    return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.float32))
