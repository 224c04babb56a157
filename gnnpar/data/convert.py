"""From a reader's `RawGraph` to arrays in a store, and back to a `Graph`. N vertices, E edges, F features."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnpar.data.raw import RawGraph, RowBlocks
from gnnpar.data.splits import choose_split
from gnnpar.data.store import Store, StoreWriter
from gnnpar.errors import Faults
from gnnpar.graph import build
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.graph.validate import edge_faults, label_faults, mask_faults, number_faults

__all__ = ["Recipe", "read_graph", "write_graph"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is done to a source, whatever its format.

    Attributes:
        symmetrize: add the reverse of every edge.
        normalize: `row` divides each vertex's features by their sum (the Planetoid convention), or `none`.
        features: what a source without features gets: `auto` and `degree` a one-hot of log2(degree), `random`
            seeded Gaussians of width `num_features`, `given` an error. A source with features keeps them
            under `auto` and `given`.
    """

    symmetrize: bool = False
    normalize: str = "none"
    features: str = "auto"
    num_features: int = 64
    seed: int = 0


def write_graph(raw: RawGraph, recipe: Recipe, writer: StoreWriter) -> None:
    """Check `raw`, apply the recipe and write the result.

    Raises:
        InputError: every fault of the source at once.

    Cost: one sort of the edges; features pass through in blocks. Memory: about 40 bytes an edge.
    """
    faults = Faults(f"dataset {raw.name}")
    num_classes = raw.num_classes or _count_classes(raw.y)
    faults.extend(_shape_faults(raw))
    faults.raise_if_any()
    faults.extend(edge_faults("edge_index", raw.edge_index, raw.num_nodes))
    faults.extend(label_faults(raw.y, num_classes))
    if raw.num_classes is None:
        faults.extend(_class_gap_faults(raw.y, num_classes))
    faults.extend(mask_faults(raw.masks) if raw.masks else [])
    for name, value in (("edge_weight", raw.edge_weight), ("edge_attr", raw.edge_attr)):
        if value is not None:
            faults.extend(number_faults(name, value))
    given = recipe.features in ("auto", "given")
    if given and raw.x is not None:
        faults.extend(_put_features(raw.x, recipe.normalize, writer))
    elif recipe.features == "given" and not raw.edge_features_as_x:
        faults.add(
            "has no vertex features; set dataset.features=degree (one-hot of log2 degree) or "
            "dataset.features=random (seeded Gaussians of width dataset.num_features)"
        )
    faults.raise_if_any()

    indptr, indices, weight, attr = _csr(raw, recipe)
    writer.put("indptr", indptr.numpy())
    writer.put("indices", indices.numpy())
    if weight is not None:
        writer.put("edge_weight", weight.numpy())
    if attr is not None:
        writer.put("edge_attr", attr.numpy())
    if not given or raw.x is None:
        x = _made_features(raw, recipe, indptr, indices, attr)
        faults.extend(_put_features(x, recipe.normalize, writer))
        faults.raise_if_any()
    writer.put("y", (raw.y.to(torch.int64) if raw.y.dim() == 1 else raw.y.float()).numpy())
    for name, mask in raw.masks.items():
        writer.put(name, mask.numpy())
    features = "given" if given and raw.x is not None else _made_kind(raw, recipe)
    writer.meta.update(name=raw.name, num_classes=num_classes, features=features, recipe=asdict(recipe))


def read_graph(store: Store, *, split: int) -> Graph:
    """The stored graph with the masks of one split. Everything but masks stays mapped, nothing is copied.

    Raises:
        InputError: the source has fewer splits.
    """
    arrays = {key: torch.from_numpy(array) for key, array in store.arrays.items()}
    meta: dict[str, Any] = dict(store.meta)
    name = meta["name"]
    x: Tensor | SparseRows | None = arrays.get("x")
    if "x_indptr" in arrays:
        x = SparseRows(arrays["x_indptr"], arrays["x_indices"], arrays["x_values"], meta["num_features"])
    masks = {key: value for key, value in arrays.items() if key.endswith("_mask")}
    y = arrays["y"]
    return Graph(
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        x=x,
        y=y,
        **choose_split(masks, y, split, name),
        num_classes=meta["num_classes"],
        node_ids=torch.arange(y.shape[0]),
        edge_weight=arrays.get("edge_weight"),
        edge_attr=arrays.get("edge_attr"),
        name=name,
    )


def _csr(raw: RawGraph, recipe: Recipe) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    edges, values = raw.edge_index, (raw.edge_weight, raw.edge_attr)
    both = recipe.symmetrize or raw.inverse_edges
    if both:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        values = tuple(None if v is None else torch.cat([v, v]) for v in values)  # type: ignore[assignment]
    values = tuple(None if v is None else v.float() for v in values)  # type: ignore[assignment]
    indptr, indices, (weight, attr) = build.edges_to_csr(
        edges[0].numpy(), edges[1].numpy(), raw.num_nodes, values, duplicates="mean" if both else "sum"
    )
    return indptr, indices, weight, attr


def _made_kind(raw: RawGraph, recipe: Recipe) -> str:
    if recipe.features == "auto":
        return "edge mean" if raw.edge_features_as_x else "degree"
    return recipe.features


def _made_features(
    raw: RawGraph, recipe: Recipe, indptr: Tensor, indices: Tensor, attr: Tensor | None
) -> Tensor | SparseRows:
    kind, n = _made_kind(raw, recipe), raw.num_nodes
    in_degree = indptr[1:] - indptr[:-1]
    if kind == "edge mean" and attr is not None:
        row = torch.repeat_interleave(torch.arange(n), in_degree)
        total = torch.zeros(n, attr.shape[1]).index_add_(0, row, attr)
        return total / in_degree.clamp(min=1).unsqueeze(1)
    if kind == "random":
        rng = np.random.default_rng([recipe.seed, 0xFEA7])
        return torch.from_numpy(rng.standard_normal((n, recipe.num_features), dtype=np.float32))
    degree = in_degree + torch.bincount(indices, minlength=n)
    bucket = torch.log2(degree.double() + 1).to(torch.int32)
    width = int(bucket.max()) + 1 if n else 1
    return SparseRows(torch.arange(n + 1), bucket, torch.ones(n), width)


def _put_features(x: Tensor | SparseRows | RowBlocks, normalize: str, writer: StoreWriter) -> list[str]:
    """Write features as float32, normalised; what is wrong with them."""
    if isinstance(x, SparseRows):
        values = x.values.float()
        faults = number_faults("features", values) + edge_faults("feature column", x.indices, x.num_columns)
        if not faults and normalize == "row":
            counts = x.indptr[1:] - x.indptr[:-1]
            row = torch.repeat_interleave(torch.arange(counts.numel()), counts)
            total = torch.zeros(counts.numel(), dtype=torch.float64).index_add_(0, row, values.double())
            values = (values / total[row].clamp(min=torch.finfo(torch.float32).tiny)).float()
            faults = _negative_faults(float(x.values.min()) if x.values.numel() else 0.0)
        for name, array in (
            ("x_indptr", x.indptr),
            ("x_indices", x.indices.to(torch.int32)),
            ("x_values", values),
        ):
            writer.put(name, array.numpy())
        writer.meta["num_features"] = x.num_columns
        return faults
    shape = x.shape
    blocks = x.blocks() if isinstance(x, RowBlocks) else (block.numpy() for block in torch.split(x, 1 << 16))
    out = writer.create("x", (shape[0], shape[1]), np.float32)
    faults, low, start = [], 0.0, 0
    for block in blocks:
        block = np.asarray(block, np.float32)
        if start + block.shape[0] > shape[0] or block.shape[1] != shape[1]:
            return [
                f"features: a block of shape {block.shape} from row {start} does not fit into {tuple(shape)}"
            ]
        if normalize == "row":
            low = min(low, float(block.min(initial=0.0)))
            block = block / np.maximum(block.sum(1, keepdims=True), np.finfo(np.float32).tiny)
        if not faults:
            faults = [
                line.replace("in rows", f"after row {start}, in its rows") if start else line
                for line in number_faults("features", torch.from_numpy(np.ascontiguousarray(block)))
            ]
        out[start : start + block.shape[0]] = block
        start += block.shape[0]
    if start != shape[0]:
        faults.append(f"features: {start} rows for {shape[0]} vertices")
    writer.meta["num_features"] = shape[1]
    return faults + _negative_faults(low)


def _negative_faults(low: float) -> list[str]:
    return (
        [f"dataset.normalize=row needs features >= 0, the smallest is {low:g}; use normalize=none"]
        if low < 0
        else []
    )


def _count_classes(y: Tensor) -> int:
    return y.shape[1] if y.dim() == 2 else int(y.max()) + 1 if y.numel() else 0


def _class_gap_faults(y: Tensor, num_classes: int) -> list[str]:
    """Where the labels alone tell the number of classes, a stray label shows as many empty classes."""
    if y.dim() == 2:
        return []
    present = torch.unique(y[y >= 0])
    if num_classes <= 2 * present.numel():
        return []
    return [
        f"labels: the largest is {num_classes - 1}, but only {present.numel()} classes occur: some are out "
        f"of range; correct them, or store the array num_classes={num_classes} beside them"
    ]


def _shape_faults(raw: RawGraph) -> list[str]:
    n, e = raw.num_nodes, raw.edge_index.shape[1]
    rows = {"labels": raw.y.shape[0], "features": n if raw.x is None else raw.x.shape[0]}
    rows |= {name: mask.shape[-1] for name, mask in raw.masks.items()}
    faults = [f"{name}: {have} rows for {n} vertices" for name, have in rows.items() if have != n]
    for name, value in (("edge_weight", raw.edge_weight), ("edge_attr", raw.edge_attr)):
        if value is not None and value.shape[0] != e:
            faults.append(f"{name}: {value.shape[0]} rows for {e} edges")
    return faults
