"""A graph as the samplers' loops see it: NumPy arrays, scratch for each thread, and the way back to
blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnpar.errors import Faults, InputError
from gnnpar.graph.block import Block
from gnnpar.graph.graph import Graph
from gnnpar.graph.kernels.keys import row_words
from gnnpar.graph.norm import degrees

__all__ = ["Choice", "Structure", "check_index", "count_faults", "index_faults", "is_whole", "uniform"]

About = tuple[Tensor, Tensor, Tensor]


class Structure:
    """A graph on the CPU, prepared for sampling.

    Attributes:
        indptr, indices: the CSR of in-edges, NumPy. in_degree, out_degree: `[N]`, weighted where edges are.
        dtype: of edge weights and loss weights: that of the graph's weights, else of its features.

    Raises:
        InputError: the graph is on another device.
    """

    def __init__(self, graph: Graph) -> None:
        if graph.indptr.device.type != "cpu":
            raise InputError(
                "sampling", [f"{graph.name} is on {graph.indptr.device}; sample from a graph on the CPU"]
            )
        self.graph = graph
        self.indptr: Any = graph.indptr.contiguous().numpy()
        self.indices: Any = graph.indices.contiguous().numpy()
        self.in_degree, self.out_degree = degrees(graph)
        given = next((v for v in (graph.edge_weight, graph.x) if v is not None), None)
        self.dtype = torch.get_default_dtype() if given is None else given.dtype
        self._idle: list[Any] = []

    @contextmanager
    def mark(self) -> Iterator[Any]:
        """`[N]` int32 scratch that is -1 everywhere, and must be so again when given back.

        There are as many as threads that sample at once. One that an error left dirty is dropped.
        """
        try:
            mark = self._idle.pop()
        except IndexError:
            mark = np.full(self.graph.num_nodes, -1, np.int32)
        yield mark
        self._idle.append(mark)

    def empty(self, size: int) -> Any:
        """Uninitialised weights, NumPy."""
        return torch.empty(size, dtype=self.dtype).numpy()

    def about(self, vertices: Tensor) -> About:
        """Original ids, in- and out-degree in the whole graph of vertices `[M]`, each `[M]`."""
        of = (self.graph.node_ids, self.in_degree, self.out_degree)
        # Of the ways to gather rows the fastest by far.
        ids, into, out = (value.index_select(0, vertices) for value in of)
        return ids, into, out

    def block(
        self, about: About, ends: Any, columns: Tensor, edges: Tensor, factor: Tensor | None = None
    ) -> Block:
        """A block, with weights and features of the graph's edges.

        Args:
            about: of the columns, `[M]` each. ends: `[R + 1]`. columns, edges, factor:
                `[E_b]`; the factor multiplies the edge weights.
        """
        graph, (ids, into, out) = self.graph, about
        weight = factor
        if graph.edge_weight is not None:
            weight = graph.edge_weight.index_select(0, edges)
            weight = weight if factor is None else weight * factor
        indptr = torch.as_tensor(ends)
        num_rows = indptr.numel() - 1
        return Block(
            num_rows=num_rows,
            indptr=indptr,
            columns=columns,
            row_ids=ids[:num_rows],
            column_ids=ids,
            in_degree=into,
            out_degree=out,
            edge_weight=weight,
            edge_attr=None if graph.edge_attr is None else graph.edge_attr.index_select(0, edges),
        )

    def alone(self, vertices: Tensor, ends: Any, columns: Tensor, edges: Tensor) -> Block:
        """The block of a subgraph that stands for itself: square, degrees counted on its own edges."""
        block = self.block(self.about(vertices), ends, columns, edges)
        value = columns.new_ones(columns.numel()) if block.edge_weight is None else block.edge_weight
        zero = value.new_zeros(vertices.numel())
        into, out = zero.index_add(0, block.rows, value), zero.index_add(0, columns, value)
        return replace(block, in_degree=into, out_degree=out)

    def induced(self, vertices: Tensor) -> tuple[Any, Tensor, Tensor]:
        """All edges of the graph between distinct vertices `[M]`: `(ends [M + 1], edges, columns)`."""
        from gnnpar.batch.loops.rows import set_marks
        from gnnpar.batch.loops.subgraphs import keep_marked

        with self.mark() as mark:
            set_marks(mark, vertices.numpy())
            ends, edges, columns = keep_marked(self.indptr, self.indices, vertices.numpy(), mark)
            mark[vertices.numpy()] = -1
        return ends, torch.from_numpy(edges), torch.from_numpy(columns)


def index_faults(name: str, index: object) -> list[str]:
    """Faults of what should be a tensor `[n]` of integers."""
    if not isinstance(index, Tensor):
        return [f"{name}: must be a tensor of integers [n], got {type(index).__name__}"]
    if index.dim() != 1 or index.dtype not in (
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ):
        return [f"{name}: must be integers [n], got {list(index.shape)} {index.dtype}"]
    return []


def is_whole(value: object) -> bool:
    """A whole number of Python or NumPy; `True` is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def count_faults(**counts: object) -> list[str]:
    """Faults of what should be whole numbers from 1 on, by name."""
    return [
        f"{name}: must be {'positive' if is_whole(value) else 'a whole number'}, got {value!r}"
        for name, value in counts.items()
        if not (is_whole(value) and value > 0)  # type: ignore[operator]
    ]


def check_index(title: str, name: str, index: Tensor, size: int, *, distinct: bool = False) -> Tensor:
    """`index` as contiguous int64 `[n]`, after checking that it holds integers in `0..size-1`.

    Raises:
        InputError: it does not, or `distinct` is asked for and a number occurs twice.
    """
    faults = Faults(title)
    faults.extend(index_faults(name, index))
    if not faults and index.numel():
        low, high = (int(bound) for bound in index.aminmax())
        if low < 0 or high >= size:
            outside = (index < 0) | (index >= size)
            first = int(outside.nonzero()[0])
            faults.add(
                f"{name}: {int(outside.sum())} of {index.numel()} outside 0..{size - 1}, "
                f"the first at position {first}: {int(index[first])}"
            )
        if distinct:
            values, counts = torch.unique(index, return_counts=True)
            if values.numel() < index.numel():
                faults.add(f"{name}: {int(values[counts > 1][0])} occurs more than once")
    faults.raise_if_any()
    return index.to("cpu", torch.int64).contiguous()


class Choice:
    """Draws of `0..n-1` with probabilities proportional to given numbers.

    Attributes:
        q: `[n]` float64 probabilities; all zero where nothing can be drawn.
    """

    def __init__(self, chance: Tensor) -> None:
        self._ends = torch.cumsum(chance.to(torch.float64), 0)
        total = self._ends[-1] if chance.numel() else self._ends.sum()
        self.q = chance / total if bool(total > 0) else torch.zeros_like(chance)

    def __call__(self, words: tuple[int, int], draws: Tensor) -> Tensor:
        """`[m]`: the one of every draw, a function of the key's words and the draw's number."""
        place = torch.searchsorted(self._ends, uniform(words, draws) * self._ends[-1], right=True)
        return place.clamp_(max=self._ends.numel() - 1)


def uniform(words: tuple[int, int], draws: Tensor) -> Tensor:
    """`[n]` float64 in [0, 1) with 53 random bits, a function of the key's words and the draws' numbers."""
    high, low = row_words(draws, *words)
    return ((high >> 5) * 2.0**26 + (low >> 6)).to(torch.float64) / 2.0**53
