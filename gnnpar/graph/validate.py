"""What can be wrong with a graph, found all at once: `validate` for a `Graph`, the single checks for readers.

Each check returns lines that say what is wrong, how often, where first, and what to do. N vertices, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph

__all__ = ["edge_faults", "label_faults", "mask_faults", "number_faults", "validate"]

_BLOCK = 1 << 23
_SHOWN = 3


def validate(graph: Graph) -> list[str]:
    """Every fault of a graph: shapes, edges out of range, numbers not finite, labels, masks. Empty if sound.

    Cost: one pass over all tensors in blocks of a few MiB (no copy of the features).
    """
    shapes = _shape_faults(graph)
    if shapes:
        return shapes
    faults = edge_faults("edge index", graph.indices, graph.num_nodes)
    x = graph.x
    if x is not None:
        faults += number_faults("features", x.values if isinstance(x, SparseRows) else x)
    if isinstance(x, SparseRows):
        faults += edge_faults("feature column", x.indices, x.num_columns)
    for name, value in (("edge_weight", graph.edge_weight), ("edge_attr", graph.edge_attr)):
        if value is not None:
            faults += number_faults(name, value)
    faults += label_faults(graph.y, graph.num_classes)
    masks = {"train_mask": graph.train_mask, "val_mask": graph.val_mask, "test_mask": graph.test_mask}
    faults += mask_faults(masks)
    if graph.multi_label and bool(graph.train_mask.any()) and bool(graph.y[graph.train_mask].isnan().all()):
        faults.append("train_mask: no label of its vertices is known; choose vertices with labels")
    if not graph.multi_label:
        for name, mask in masks.items():
            faults += _offenders(
                f"{name}: {{count}} vertices without a label (y = -1)",
                mask & (graph.y == -1),
                "leave them out of it",
            )
    return faults


def edge_faults(name: str, ids: Tensor, num_nodes: int) -> list[str]:
    """Ids (any shape, integer) outside `0..num_nodes-1`."""
    if ids.numel() == 0 or (int(ids.min()) >= 0 and int(ids.max()) < num_nodes):
        return []
    outside = ((ids < 0) | (ids >= num_nodes)).flatten()
    shown = ids.flatten()[outside.nonzero().flatten()[:_SHOWN]].tolist()
    return [
        f"{name}: {int(outside.sum())} ids out of range 0..{num_nodes - 1}, the first are {shown}; "
        f"correct the ids or the number of them"
    ]


def number_faults(name: str, values: Tensor) -> list[str]:
    """NaN and infinity in a floating-point tensor `[n, ...]`; integers are always sound."""
    if not values.dtype.is_floating_point or values.numel() == 0:
        return []
    count, rows = 0, list[int]()
    for start, block in _row_blocks(values):
        bad = ~torch.isfinite(block)
        if bool(bad.any()):
            count += int(bad.sum())
            rows += (
                (bad.flatten(1).any(1) if bad.dim() > 1 else bad)
                .nonzero()
                .flatten()[:_SHOWN]
                .add(start)
                .tolist()
            )
    if count == 0:
        return []
    return [
        f"{name}: {count} values are NaN or infinite, the first in rows {rows[:_SHOWN]}; "
        "clean them before training"
    ]


def label_faults(y: Tensor, num_classes: int) -> list[str]:
    """Classes outside `-1..num_classes-1` (`[N]`), or multi-labels other than 0, 1 and NaN (`[N, T]`)."""
    if y.dim() == 2:
        bad = ((y != 0) & (y != 1) & ~y.isnan()).any(1)
        return _offenders(
            "labels: {count} rows hold values other than 0, 1 and NaN", bad, "encode labels as 0 and 1"
        )
    faults = _offenders(
        f"labels: {{count}} outside 0..{num_classes - 1} (-1 = unlabelled)",
        (y < -1) | (y >= num_classes),
        "correct them or the number of classes",
        shown=y,
    )
    if y.numel() and bool((y == -1).all()):
        faults.append("labels: no vertex has one; give `y` for at least the training vertices")
    return faults


def mask_faults(masks: dict[str, Tensor]) -> list[str]:
    """Masks `[N]` or `[S, N]` (S splits) by name: overlaps, and a training mask that selects nothing."""
    faults: list[str] = []
    names = list(masks)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            both = masks[first] & masks[second]
            both = both.any(0) if both.dim() == 2 else both
            faults += _offenders(
                f"{first} and {second} overlap in {{count}} vertices", both, "make them disjoint"
            )
    for name, mask in masks.items():
        if name.startswith("train") and not bool(mask.any(-1).all()):
            which = "" if mask.dim() == 1 else f" in split {int((~mask.any(-1)).nonzero()[0])}"
            faults.append(f"{name}: no vertex is selected{which}; training needs at least one")
    return faults


def _shape_faults(graph: Graph) -> list[str]:
    n, e, faults = graph.num_nodes, graph.num_edges, list[str]()
    indptr = graph.indptr
    if n < 0 or int(indptr[0]) != 0 or int(indptr[-1]) != e or bool((indptr[1:] < indptr[:-1]).any()):
        faults.append(f"indptr: must rise from 0 to the number of edges {e}")
    per_vertex = ("y", "train_mask", "val_mask", "test_mask", "node_ids", "x")
    for rows, names in ((n, per_vertex), (e, ("edge_weight", "edge_attr"))):
        for name in names:
            value = getattr(graph, name)
            if value is not None and value.shape[0] != rows:
                what = "vertices" if rows == n and name in per_vertex else "edges"
                faults.append(f"{name}: {value.shape[0]} rows for {rows} {what}; give one row each")
    if graph.edge_attr is not None and graph.edge_attr.dim() != 2:
        faults.append(f"edge_attr: must be [E, K], is {list(graph.edge_attr.shape)}; use edge_attr[:, None]")
    for name in ("train_mask", "val_mask", "test_mask"):
        if getattr(graph, name).dtype != torch.bool:
            faults.append(f"{name}: must be bool, is {getattr(graph, name).dtype}")
    return faults


def _row_blocks(values: Tensor) -> Iterator[tuple[int, Tensor]]:
    step = max(1, _BLOCK // max(1, values[0].numel()))
    for start in range(0, values.shape[0], step):
        yield start, values[start : start + step]


def _offenders(text: str, bad: Tensor, cure: str, shown: Tensor | None = None) -> list[str]:
    if not bool(bad.any()):
        return []
    where = bad.nonzero().flatten()[:_SHOWN]
    values = "" if shown is None else f" with values {shown[where].tolist()}"
    return [f"{text.format(count=int(bad.sum()))}, the first are vertices {where.tolist()}{values}; {cure}"]
