"""A seeded generator of labelled graphs of any size: the degree-corrected planted partition model.

After Karrer and Newman, "Stochastic blockmodels and community structure in networks", Phys. Rev. E 83 (2011).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gnnpar.data.raw import RawGraph
from gnnpar.errors import Faults

__all__ = ["PlantedPartition", "generate"]

Array = npt.NDArray[Any]
_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class PlantedPartition:
    """What to generate.

    Attributes:
        num_nodes: N. num_classes: C, equally likely. num_features: F.
        mean_degree: mean number of neighbours; N · mean_degree directed edges are stored.
        exponent: of the power law of expected degrees, > 2 (they are cut at sqrt(N · mean_degree)).
        homophily: share of edges within a class, in 0..1.
        signal: distance of two classes' feature means, in standard deviations of the noise around them.
    """

    num_nodes: int = 10_000
    mean_degree: float = 16.0
    exponent: float = 2.5
    homophily: float = 0.8
    signal: float = 1.0
    num_features: int = 64
    num_classes: int = 8
    seed: int = 0

    def check(self) -> None:
        """Raises InputError with every value that cannot be."""
        faults = Faults("generated dataset")
        rules = {
            "num_nodes": (self.num_nodes >= 2, "at least 2"),
            "num_classes": (1 <= self.num_classes <= self.num_nodes, "in 1..num_nodes"),
            "num_features": (self.num_features >= 1, "positive"),
            "mean_degree": (0 < self.mean_degree <= self.num_nodes / 4, "positive, at most num_nodes / 4"),
            "exponent": (self.exponent > 2, "greater than 2"),
            "homophily": (0 <= self.homophily <= 1, "in 0..1"),
        }
        for key, (holds, rule) in rules.items():
            if not holds:
                faults.add(f"dataset.{key}: must be {rule}, got {getattr(self, key)}")
        if self.num_classes == 1 and self.homophily < 1:
            faults.add("dataset.homophily: one class has no edges between classes; set it to 1")
        faults.raise_if_any()


def generate(spec: PlantedPartition) -> RawGraph:
    """Draw a graph. Equal specs give equal graphs. Cost: seconds for 10M edges; 40 bytes an edge.

    Raises:
        InputError: values outside their ranges.
    """
    spec.check()
    rng = np.random.default_rng([spec.seed, 0x9EAF])
    y = rng.integers(0, spec.num_classes, spec.num_nodes)
    sampler = _EndpointSampler(y, _weights(spec, rng), rng)
    wanted = round(spec.num_nodes * spec.mean_degree / 2)
    edges = np.empty(0, np.int64)
    for _ in range(_ROUNDS):
        missing = wanted - edges.size
        if missing <= 0:
            break
        first, second = sampler.pairs(missing + missing // 16 + 8, spec.homophily)
        low, high = np.minimum(first, second), np.maximum(first, second)
        edges = np.concatenate([edges, (low * spec.num_nodes + high)[low != high]])
        edges.sort()
        edges = edges[np.concatenate([[True], edges[1:] != edges[:-1]])]
    if edges.size > wanted:
        edges = np.delete(edges, rng.choice(edges.size, edges.size - wanted, replace=False))
    low = edges // spec.num_nodes
    pair = torch.from_numpy(np.stack([low, edges - low * spec.num_nodes]).astype(np.int32))
    means = rng.standard_normal((spec.num_classes, spec.num_features), dtype=np.float32)
    means *= np.float32(spec.signal / np.sqrt(2 * spec.num_features))
    x = rng.standard_normal((spec.num_nodes, spec.num_features), dtype=np.float32)
    x += means[y]
    return RawGraph(
        "generated",
        spec.num_nodes,
        pair,
        torch.from_numpy(y),
        torch.from_numpy(x),
        num_classes=spec.num_classes,
        inverse_edges=True,
    )


def _weights(spec: PlantedPartition, rng: np.random.Generator) -> Array:
    """Expected degrees up to a factor: a power law cut where single edges would repeat."""
    weights = rng.random(spec.num_nodes) ** (-1 / (spec.exponent - 1))
    mean = (spec.exponent - 1) / (spec.exponent - 2)
    cut = max(1.0, np.sqrt(spec.num_nodes * spec.mean_degree) * mean / spec.mean_degree)
    cut_off: Array = np.minimum(weights, cut)
    return cut_off


class _EndpointSampler:
    """Draws vertices by weight, from one class or from all others. Vertices are kept sorted by class."""

    def __init__(self, y: Array, weights: Array, rng: np.random.Generator) -> None:
        self.rng = rng
        self.order = np.argsort(y, kind="stable")
        self.y_sorted = y[self.order]
        self.total = np.cumsum(weights[self.order])
        bounds = np.searchsorted(self.y_sorted, np.arange(y.max() + 2))
        self.bound = np.concatenate([[0.0], self.total])[bounds]

    def pairs(self, count: int, homophily: float) -> tuple[Array, Array]:
        """`count` pairs; the second is of the first's class with probability `homophily`."""
        everything = self.total[-1]
        first = self._vertices(np.sort(self.rng.random(count)) * everything)
        group = self.y_sorted[first]
        low, high = self.bound[group], self.bound[group + 1]
        u = self.rng.random(count)
        inside = low + u * (high - low)
        # Outside: jump from the end of the class around to its beginning.
        outside = (high + u * (everything - (high - low))) % everything
        second = self._vertices(np.where(self.rng.random(count) < homophily, inside, outside))
        return self.order[first], self.order[second]

    def _vertices(self, points: Array) -> Array:
        return np.minimum(np.searchsorted(self.total, points, side="right"), self.total.size - 1)
