"""Neighbour sampling: some in-neighbours of every row, hop by hop (GraphSAGE, LABOR)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnpar.batch.sampled import Batch, BatchKey
from gnnpar.batch.structure import Structure, check_index, is_whole
from gnnpar.errors import Faults
from gnnpar.graph.block import Block
from gnnpar.graph.graph import Graph

__all__ = ["NeighbourSampler", "check_count", "check_counts"]


class NeighbourSampler:
    """Draws at most `fanouts[h]` in-edges of every vertex that hop h reaches.

    Uniform (Hamilton, Ying and Leskovec 2017, §3.1): an edge of a row of degree d is drawn with probability
    min(1, k / d), and exactly k edges are; `replace`: k independent draws of any row that has edges, which
    may repeat an edge. `labor` (LABOR-0, Balin and Çatalyürek 2023, §3.1): the same probability of every
    edge, but each hop draws one number a *source* and takes its edges where that is below k / d: rows that
    share neighbours take the same ones, so fewer vertices are reached; a row's number of edges is k only on
    average.

    Every vertex reached so far is a row of the next hop, with neighbours drawn afresh.

    Args:
        fanouts: one count a hop, the seeds' first (the last layer's); -1: all edges.

    Raises:
        InputError: no fan-outs, a count that is neither positive nor -1, or `labor` with `replace`.

    Cost: O(edges drawn) a batch; `labor` also hashes every edge of the rows. 4 bytes a vertex and thread.
    """

    def __init__(
        self, graph: Graph, fanouts: Sequence[int], *, replace: bool = False, labor: bool = False
    ) -> None:
        faults = Faults("neighbour sampling")
        faults.extend(check_counts("fanouts", fanouts, all_allowed=True))
        if labor and replace:
            faults.add("labor: a source is taken once or not at all; set replace=False")
        faults.raise_if_any()
        self.fanouts, self.replace, self.labor = tuple(fanouts), replace, labor
        self._structure = Structure(graph)

    @property
    def num_units(self) -> int:
        """Seeds are vertices."""
        return self._structure.graph.num_nodes

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """See `Sampler`. `blocks[-1]` has the seeds as rows and holds the edges of `fanouts[0]`."""
        from gnnpar.batch.loops.rows import relabel, set_marks

        seeds = check_index("neighbour sampling", "seeds", seeds, self.num_units)
        vertices: Any = seeds.numpy()
        count, drawn = vertices.size, []
        with self._structure.mark() as mark:
            set_marks(mark, vertices)
            for hop, fanout in enumerate(self.fanouts):
                ends, edges, sources, factor = self._draw(vertices, count, fanout, key.words(hop))
                reached = np.empty(count + edges.size + 1, np.int64)
                reached[:count] = vertices[:count]
                vertices = reached
                count = int(relabel(mark, vertices, count, sources))
                drawn.append((ends, sources, edges, factor, count))
            vertices = vertices[:count].copy()
            mark[vertices] = -1
        return self._batch(key, torch.from_numpy(vertices), drawn, seeds.numel())

    def _draw(self, vertices: Any, num_rows: int, fanout: int, words: tuple[int, int]) -> tuple[Any, ...]:
        from gnnpar.batch.loops.rows import count_picks, pick, pick_labor

        structure = self._structure
        indptr, indices = structure.indptr, structure.indices
        if self.labor and fanout >= 0:
            like = structure.empty(0)
            return tuple(pick_labor(indptr, indices, vertices, num_rows, fanout, *words, like))
        replace = self.replace and fanout >= 0
        ends = np.empty(num_rows + 1, np.int64)
        size = count_picks(indptr, vertices, num_rows, fanout, replace, ends)
        edges, sources = np.empty(size, np.int64), np.empty(size, np.int64)
        factor = structure.empty(size)
        pick(indptr, indices, vertices, replace, *words, ends, edges, sources, factor)
        return ends, edges, sources, None if fanout < 0 else factor

    def _batch(self, key: BatchKey, vertices: Tensor, drawn: list[Any], num_seeds: int) -> Batch:
        structure, blocks, edge_ids = self._structure, list[Block](), []
        ids, into, out = structure.about(vertices)
        for ends, columns, edges, factor, count in reversed(drawn):
            about = ids[:count], into[:count], out[:count]
            weight = None if factor is None else torch.from_numpy(factor)
            edge_ids.append(torch.from_numpy(edges))
            blocks.append(structure.block(about, ends, torch.from_numpy(columns), edge_ids[-1], weight))
        return Batch(key, vertices, tuple(blocks), tuple(edge_ids), torch.arange(num_seeds))


def check_counts(name: str, counts: object, *, all_allowed: bool = False) -> list[str]:
    """Faults of what should be a list of one count a layer."""
    if not isinstance(counts, list | tuple) or not counts:
        return [f"{name}: must be a list with {_wanted(all_allowed)} for every layer, got {counts!r}"]
    found = (check_count(f"{name}[{i}]", count, all_allowed=all_allowed) for i, count in enumerate(counts))
    return [fault for faults in found for fault in faults]


def check_count(name: str, count: object, *, all_allowed: bool = False) -> list[str]:
    """The fault of what should be one count, if there is one."""
    if is_whole(count) and (count > 0 or (all_allowed and count == -1)):  # type: ignore[operator]
        return []
    return [f"{name}: must be {_wanted(all_allowed)}, got {count!r}"]


def _wanted(all_allowed: bool) -> str:
    return "a positive number" + (", or -1 for all edges" if all_allowed else "")
