"""`partition_graph`: check the request, look in the cache, cut, repair, order."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from gnnpar.config import PartitionConfig
from gnnpar.errors import Faults, InputError
from gnnpar.graph.graph import Graph
from gnnpar.partition import files
from gnnpar.partition.child import External
from gnnpar.partition.fennel import fennel
from gnnpar.partition.ldg import ldg
from gnnpar.partition.order import INNER_ORDERS, order_within
from gnnpar.partition.partition import Partition, PartitionKey
from gnnpar.partition.problem import FloatArray, IntArray, Problem, cost_fingerprint, degree_cost
from gnnpar.partition.random import at_random
from gnnpar.partition.range import by_range

__all__ = ["METHODS", "fill_empty_parts", "partition_from_config", "partition_graph"]

VERSION = "1"
"""Of the methods of this package: raised when a change gives other parts for the same request."""

METHODS: MappingProxyType[str, Callable[[Problem], IntArray]] = MappingProxyType(
    {
        "metis": External("metis", "pymetis"),
        "kahip": External("kahip", "kahip", "[partition]"),
        "mtkahypar": External("mtkahypar", "mtkahypar", "[partition]"),
        "ldg": ldg,
        "fennel": fennel,
        "random": at_random,
        "range": by_range,
    }
)


def partition_graph(
    graph: Graph,
    num_parts: int,
    *,
    method: str = "metis",
    seed: int = 0,
    num_groups: int = 1,
    vertex_cost: npt.ArrayLike | None = None,
    cache_dir: Path | None = None,
    inner_order: str = "metis",
    timeout_s: float = 3600.0,
) -> Partition:
    """Cut the vertices into `num_parts` parts of about equal cost with few edges between them.

    Direction, duplicates and self loops of edges are ignored. The result is a function of the arguments
    (and of the version of the library behind `method`). No part is empty.

    Args:
        graph: N vertices, in any order, isolated ones too.
        num_parts: C, 1 to N.
        method: "metis", "kahip", "mtkahypar", "ldg", "fennel", "random" or "range".
        seed: not negative.
        num_groups: cut into this many first, and each of them into C ÷ num_groups parts with consecutive
            numbers: few edges between the groups matter more than few between the parts.
        vertex_cost: `[N]` cost of each vertex, such as `degree_cost`; all equal where not given.
        cache_dir: folder of earlier results, looked up and added to; None for no cache.
        inner_order: "metis", "rcm" or "none": order of the vertices within a part (`gnnpar.partition.order`).
        timeout_s: seconds that a child process with a third-party partitioner may take.

    Raises:
        InputError: a wrong argument, or a library that is not installed.
        RunError: a third-party partitioner crashed, ran out of memory or overran the deadline.

    Cost: O(E) memory; ogbn-arxiv in 16 parts by METIS takes two seconds.
    """
    cost = _check(graph, num_parts, method, seed, num_groups, vertex_cost, inner_order)
    num_groups = 1 if num_groups == num_parts else num_groups  # parts are groups: one cut
    key = PartitionKey(
        graph_fingerprint=graph.fingerprint,
        method=method,
        num_parts=num_parts,
        seed=seed,
        inner_order=inner_order,
        cost_fingerprint=cost_fingerprint(cost),
        version=_version(method),
        num_groups=num_groups,
    )
    if cache_dir is not None and (cached := files.load_cached(cache_dir, key)) is not None:
        return cached
    problem = Problem(graph, num_parts, seed, cost, timeout_s)
    part = _cut(problem, method, num_groups)
    sizes = np.bincount(part, minlength=num_parts)
    partition = Partition(
        key,
        order=torch.from_numpy(order_within(problem, part, inner_order)),
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])),
    )
    if cache_dir is not None:
        files.save_cached(cache_dir, partition)
    return partition


def partition_from_config(
    graph: Graph,
    config: PartitionConfig,
    num_parts: int,
    *,
    cache_dir: Path | None = None,
    slot_size: int = 1,
) -> Partition:
    """`partition_graph` as a run's config says. A vertex costs `cost_vertex + cost_edge · in-degree`.

    Args:
        slot_size: parts of one micro-batch. Part p of every micro-batch goes to the same way, so the graph is
            cut into as many groups first.

    Raises:
        InputError: `config.path` cannot be read, is of another graph, or has not `num_parts` parts.
    """
    if config.path is not None:
        partition = files.load_partition(Path(config.path), graph)
        if partition.num_parts != num_parts:
            have = (
                f"{config.path} has {partition.num_parts} parts, batch.num_chunks is {num_parts // slot_size}"
            )
            cure = f"use batch.num_chunks={partition.num_parts}"
            if slot_size > 1:
                have += f", each in {slot_size} parts for parallel.ways"
                cure = f"cut the graph into {num_parts} parts"
            raise InputError("partition.path", [f"{have}; {cure}"])
        return partition
    return partition_graph(
        graph,
        num_parts,
        method=config.method,
        seed=config.seed,
        num_groups=slot_size,
        vertex_cost=degree_cost(graph, config.cost_vertex, config.cost_edge),
        cache_dir=cache_dir,
        inner_order=config.inner_order,
    )


def _cut(problem: Problem, method: str, num_groups: int = 1) -> IntArray:
    """`[N]` part of every vertex, none empty."""
    if num_groups > 1:
        return _cut_in_groups(problem, method, num_groups)
    if problem.num_parts == 1 or problem.num_parts == problem.num_nodes:
        return by_range(problem)
    if problem.structure.nnz == 0 and method != "random":
        return by_range(problem)
    return fill_empty_parts(METHODS[method](problem), problem.num_parts)


def _cut_in_groups(problem: Problem, method: str, num_groups: int) -> IntArray:
    """The same, group by group."""
    width = problem.num_parts // num_groups
    group = fill_empty_parts(_cut(problem.into(num_groups), method), num_groups, least=width)
    part = np.empty_like(group)
    for number in range(num_groups):
        members = np.flatnonzero(group == number)
        part[members] = number * width + _cut(problem.among(members, width), method)
    return part


def fill_empty_parts(part: IntArray, num_parts: int, least: int = 1) -> IntArray:
    """`[N]` parts of at least `least` vertices: smaller ones take what they lack from the largest one, an
    empty one up to a mean part's worth.

    Partitioners may leave parts empty on tiny graphs and on graphs of many components.
    """
    sizes = np.bincount(part, minlength=num_parts)
    if sizes.min() >= least:
        return part
    part = part.copy()
    for small in np.flatnonzero(sizes < least):
        while sizes[small] < least:
            largest = int(sizes.argmax())
            spare = min(sizes[largest] // 2, part.size // num_parts) if sizes[small] == 0 else 0
            num_moved = max(min(spare, sizes[largest] - least), 1)
            part[np.flatnonzero(part == largest)[-num_moved:]] = small
            sizes[largest] -= num_moved
            sizes[small] += num_moved
    return part


def _version(method: str) -> str:
    chosen = METHODS[method]
    if not isinstance(chosen, External):
        return VERSION
    chosen.require()
    return f"{VERSION}+{chosen.library}-{importlib.metadata.version(chosen.library)}"


def _check(
    graph: Graph,
    num_parts: int,
    method: str,
    seed: int,
    num_groups: int,
    vertex_cost: npt.ArrayLike | None,
    inner_order: str,
) -> FloatArray | None:
    """The costs as float64, after all faults of the arguments were raised at once."""
    faults = Faults("partition")
    n = graph.num_nodes
    if num_parts < 1:
        faults.add(f"num_parts (batch.num_chunks): must be at least 1, got {num_parts}")
    elif num_parts > n:
        faults.add(
            f"num_parts (batch.num_chunks): {num_parts} parts, but {graph.name} has only {n} vertices "
            f"and no part may be empty; choose at most {n}"
        )
    for name, value, known in (
        ("method", method, tuple(METHODS)),
        ("inner_order", inner_order, INNER_ORDERS),
    ):
        if value not in known:
            near = difflib.get_close_matches(str(value), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            faults.add(f"partition.{name}: unknown {value!r}; {hint}choose from {', '.join(known)}")
    if num_groups < 1 or num_parts % num_groups:
        faults.add(f"num_groups: must divide num_parts={num_parts}, got {num_groups}")
    if seed < 0:
        faults.add(f"partition.seed: must not be negative, got {seed}")
    cost = None
    if vertex_cost is not None:
        cost = np.asarray(vertex_cost, dtype=np.float64)
        if cost.shape != (n,):
            faults.add(f"vertex_cost: must be one number a vertex, [{n}], got {list(cost.shape)}")
        elif not np.isfinite(cost).all() or (cost < 0).any() or not cost.any():
            faults.add("vertex_cost: must be finite, not negative and not all zero")
        elif np.ptp(cost) == 0:
            cost = None
    faults.raise_if_any()
    return cost
