"""Keys of the graph: where it comes from, how it is read, how it is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from gnnpar.config.constraints import Above, AtLeast
from gnnpar.config.keys.types import Fraction, NaturalInt, NonNegative, Positive, PositiveInt
from gnnpar.config.section import Section

__all__ = ["DatasetConfig", "PartitionConfig"]


@dataclass(frozen=True, kw_only=True)
class DatasetConfig(Section):
    """The graph: where it comes from and how it is read."""

    section: ClassVar[str] = "dataset"

    name: str = "digits"
    """Name of the dataset: the recipe that is read, and the name in tables and run directories."""
    kind: Literal["builtin", "npz", "ogb", "pyg", "generated", "memory"] = "builtin"
    """Reader: built in, an npz file, an OGB raw folder, a PyG data object saved on disk, the seeded
    generator, or a graph handed over from Python."""
    path: str | None = None
    """File or folder that is read, for the kinds that read one."""
    symmetrize: bool = False
    """Add the reverse of every edge, without duplicates."""
    split: NaturalInt = 0
    """Which of the dataset's splits; where it has none, the seed of a random 60/20/20 split."""
    normalize: Literal["none", "row"] = "none"
    """`row` divides each vertex's features by their sum, as the citation graphs are commonly used."""
    features: Literal["auto", "given", "degree", "random"] = "auto"
    """Vertex features where the files hold none: a one-hot of log2(degree) with a warning, an error, the
    one-hot without a warning, or random numbers."""
    seed: NaturalInt = 0
    """Generator: seed of the graph."""
    num_nodes: PositiveInt = 10_000
    """Generator: vertices."""
    num_classes: Annotated[int, AtLeast(2)] = 8
    """Generator: classes, planted as communities."""
    num_features: PositiveInt = 64
    """Generator: features of a vertex."""
    mean_degree: Positive = 16.0
    """Generator: mean degree, reverse edges included."""
    exponent: Annotated[float, Above(2)] = 2.5
    """Generator: exponent of the power law that degrees follow."""
    homophily: Fraction = 0.8
    """Generator: share of edges within a class."""
    signal: NonNegative = 1.0
    """Generator: distance of the classes' feature means, in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class PartitionConfig(Section):
    """How the vertices are cut into chunks."""

    section: ClassVar[str] = "partition"

    path: str | None = None
    """File that `gnnpar partition … out=FILE` wrote of this graph; null: cut it as the keys below say."""
    method: Literal["metis", "random", "range", "ldg", "fennel", "mtkahypar", "kahip"] = "metis"
    """Partitioner. `mtkahypar` and `kahip` need the extra `partition`."""
    seed: NaturalInt = 0
    """Seed of the partitioner."""
    inner_order: Literal["metis", "none", "rcm"] = "metis"
    """Order of the vertices inside a chunk: by a fine METIS partition, as they come, or Cuthill-McKee."""
    cost_vertex: NonNegative = 1.0
    """Cost of a vertex, a in a + b · degree; chunks are balanced by it."""
    cost_edge: NonNegative = 0.05
    """Cost of an in-edge, b in a + b · degree."""
