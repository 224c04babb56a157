"""How good a partition is: what each part weighs, and what it reads of the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gnnpar.graph.graph import Graph
from gnnpar.partition.partition import Partition
from gnnpar.partition.problem import IntArray

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["PartitionReport", "report"]

MAX_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class PartitionReport:
    """Numbers of one partition. A balance is max ÷ mean over the parts, 1 at best; None where all are zero.

    Attributes:
        vertices, edges, cost, train, halo: one number a part: vertices; in-edges of its vertices; their cost;
            training vertices; distinct vertices of other parts that its in-edges read.
        way_halo: of every way (each runs as many parts, with consecutive numbers): distinct vertices of other
            ways that it reads; empty where there is one way.
        cut: edges between parts. cut_share: of all edges.
        replication_factor: (N + all halos) ÷ N, the mean number of parts that hold a vertex.
    """

    graph: str
    graph_fingerprint: str
    fingerprint: str
    method: str
    seed: int
    num_parts: int
    num_nodes: int
    num_edges: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    cost: tuple[float, ...]
    train: tuple[int, ...]
    halo: tuple[int, ...]
    cut: int
    cut_share: float
    replication_factor: float
    vertex_balance: float | None
    edge_balance: float | None
    cost_balance: float | None
    train_balance: float | None
    way_halo: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    def table(self) -> Table:
        """One row a part (least and most, where parts are many), and the balances below, for a terminal."""
        from rich.table import Table

        table = Table(
            title=f"{self.graph}: {self.num_nodes:,} vertices, {self.num_edges:,} edges in {self.num_parts} "
            f"parts ({self.method}, seed {self.seed})",
            caption=f"{self._between_ways}cut {self.cut:,} edges ({self.cut_share:.1%}) · replication factor "
            f"{self.replication_factor:.2f} · partition {self.fingerprint} of graph {self.graph_fingerprint}",
            show_footer=True,
        )
        total_halo = sum(self.halo)
        columns: tuple[tuple[str, tuple[float, ...], str], ...] = (
            ("part", tuple(range(self.num_parts)), "max/mean"),
            ("vertices", self.vertices, _ratio(self.vertex_balance)),
            ("in-edges", self.edges, _ratio(self.edge_balance)),
            ("cost", self.cost, _ratio(self.cost_balance)),
            ("train", self.train, _ratio(self.train_balance)),
            ("halo", self.halo, f"Σ {total_halo:,}"),
        )
        for name, _, footer in columns:
            table.add_column(name, footer, justify="right")
        if self.num_parts <= MAX_ROWS:
            for row in zip(*(values for _, values, _ in columns), strict=True):
                table.add_row(*(f"{value:,.0f}" for value in row))
        else:
            for name, of in (("least", min), ("most", max)):
                table.add_row(name, *(f"{of(values):,.0f}" for _, values, _ in columns[1:]))
        return table

    def summary(self) -> str:
        """One line for a log."""
        return (
            f"{self.method}, {self.num_parts} parts: max/mean of vertices {_ratio(self.vertex_balance)}, "
            f"edges {_ratio(self.edge_balance)}, cost {_ratio(self.cost_balance)}, "
            f"train {_ratio(self.train_balance)}; {self._between_ways}cut {self.cut_share:.1%}, "
            f"halo {sum(self.halo):,}, replication {self.replication_factor:.2f}"
        )

    @property
    def _between_ways(self) -> str:
        if not self.way_halo:
            return ""
        return f"halo of {len(self.way_halo)} ways {sum(self.way_halo):,} · "


def report(
    graph: Graph, partition: Partition, vertex_cost: npt.ArrayLike | None = None, num_ways: int = 1
) -> PartitionReport:
    """Measure `partition` on `graph`.

    Args:
        vertex_cost: `[N]` the costs that it was made for; vertices plus in-edges where not given.
        num_ways: that share out the parts in order, as many each.

    Raises:
        InputError: the partition is of another graph.

    Cost: one sort of the cut edges.
    """
    partition.check(graph)
    n, num_parts = graph.num_nodes, partition.num_parts
    part = partition.assignment.numpy()
    degree = graph.in_degree.numpy()
    cost = degree + 1.0 if vertex_cost is None else np.asarray(vertex_cost, dtype=np.float64)
    source, reader = graph.indices.numpy(), part[graph.destinations.numpy()]
    halo, cut = _halo(source, part[source], reader, n, num_parts)
    way_halo: tuple[int, ...] = ()
    if num_ways > 1:
        holding, reading = part[source] * num_ways // num_parts, reader * num_ways // num_parts
        way_halo = tuple(_halo(source, holding, reading, n, num_ways)[0].tolist())
    vertices = np.bincount(part, minlength=num_parts)
    edges = np.bincount(part, degree, minlength=num_parts).astype(np.int64)
    costs = np.bincount(part, cost, minlength=num_parts)
    train = np.bincount(part[graph.train_mask.numpy()], minlength=num_parts)
    return PartitionReport(
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        fingerprint=partition.fingerprint,
        method=partition.method,
        seed=partition.seed,
        num_parts=num_parts,
        num_nodes=n,
        num_edges=graph.num_edges,
        vertices=tuple(vertices.tolist()),
        edges=tuple(edges.tolist()),
        cost=tuple(costs.tolist()),
        train=tuple(train.tolist()),
        halo=tuple(halo.tolist()),
        cut=cut,
        cut_share=cut / max(graph.num_edges, 1),
        replication_factor=(n + int(halo.sum())) / n,
        vertex_balance=_balance(vertices),
        edge_balance=_balance(edges),
        cost_balance=_balance(costs),
        train_balance=_balance(train),
        way_halo=way_halo,
    )


def _halo(
    source: IntArray, holder: IntArray, reader: IntArray, num_nodes: int, count: int
) -> tuple[IntArray, int]:
    """`[count]` distinct sources that each reader reads of other holders, and the number of edges between."""
    crosses = holder != reader
    copies = np.unique(reader[crosses].astype(np.int64) * num_nodes + source[crosses])
    return np.bincount(copies // max(num_nodes, 1), minlength=count), int(crosses.sum())


def _balance(values: npt.NDArray[Any]) -> float | None:
    return float(values.max() / values.mean()) if values.any() else None


def _ratio(balance: float | None) -> str:
    return "–" if balance is None else f"{balance:.3f}"
