"""The order of the vertices inside a part: it decides how often aggregation finds a row in cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnpar.graph.graph import Graph
from gnnpar.partition import metis
from gnnpar.partition.child import call_in_child
from gnnpar.partition.partition import Partition
from gnnpar.partition.problem import IntArray, Problem

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["INNER_ORDERS", "boundary_last", "order_within"]

INNER_ORDERS = ("metis", "rcm", "none")

CELL_SIZE = 1024
"""Vertices of a cell. On ogbn-arxiv 512 to 4096 aggregate equally fast; smaller ones take longer to cut."""


def order_within(problem: Problem, part: IntArray, how: str) -> npt.NDArray[np.int64]:
    """`[N]` old ids in the new order, part by part.

    - "none": ascending ids within a part.
    - "rcm": reverse Cuthill-McKee within a part: neighbours get near numbers. Best where parts fit the cache.
    - "metis": each part is cut into cells of about 1024 vertices, and RCM runs within a cell. As fast for
      small parts, and faster for large ones.
    """
    if how == "none" or problem.structure.nnz == 0:
        return np.argsort(part, kind="stable")
    cell = part if how == "rcm" else _cells(problem, part)
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(_without_edges_between(problem.structure, cell), symmetric_mode=True)
    return np.asarray(order[np.argsort(cell[order], kind="stable")], dtype=np.int64)


def boundary_last(graph: Graph, partition: Partition, num_ways: int) -> Tensor:
    """`[N]` old ids in the partition's order, but in every part those vertices last that have a neighbour
    with another way, where the ways share out the parts in order, as many each.

    What comes first can be aggregated while rows of other ways are on their way.
    """
    part = partition.assignment.long()
    way = part * num_ways // partition.num_parts
    source, target = graph.indices.long(), graph.destinations
    crosses = way[source] != way[target]
    last = torch.zeros_like(part)
    last[source[crosses]] = last[target[crosses]] = 1
    return partition.order[torch.argsort((part * 2 + last)[partition.order], stable=True)]


def _cells(problem: Problem, part: IntArray) -> IntArray:
    """`[N]` cell of every vertex, cells of a part being consecutive numbers."""
    if np.bincount(part).max() <= CELL_SIZE:
        return part
    order = np.argsort(part, kind="stable")
    inside = _without_edges_between(problem.structure, part)[order][:, order]
    cell = np.empty_like(order)
    cell[order] = call_in_child(
        Path(metis.__file__),
        "cells",
        problem.timeout_s,
        indptr=inside.indptr,
        indices=inside.indices,
        part=part[order],
        size=CELL_SIZE,
        seed=problem.seed,
    )
    return cell


def _without_edges_between(graph: csr_matrix, part: IntArray) -> csr_matrix:
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(part.size), np.diff(graph.indptr))
    keep = part[rows] == part[graph.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[graph.indptr]
    return csr_matrix((graph.data[keep], graph.indices[keep], indptr), shape=graph.shape)
