"""Layer-wise importance sampling: one set of sources serves all rows of a layer (FastGCN, LADIES)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gnnpar.batch.neighbour import check_counts
from gnnpar.batch.sampled import Batch, BatchKey
from gnnpar.batch.structure import Choice, Structure, check_index
from gnnpar.errors import Faults
from gnnpar.graph.block import Block
from gnnpar.graph.graph import Graph
from gnnpar.graph.norm import scales

__all__ = ["LayerSampler", "Linear"]


@dataclass(frozen=True, slots=True)
class Linear:
    """The aggregation P that importance is measured on, as a layer says of itself: see `FixedLinear`."""

    norm: Literal["sym", "mean", "sum"] = "sym"
    self_loops: bool = True


class LayerSampler:
    """Draws `sizes[h]` sources for all rows of hop h together, independently and with replacement.

    With P the aggregation's matrix, a vertex u is drawn with probability

        fastgcn: q(u) ∝ Σ_v P(v, u)² over all vertices v           (Chen, Ma and Xiao 2018, §3.1, eq. 10)
        ladies:  q(u) ∝ Σ_v P(v, u)² over the rows v of the hop    (Zou et al. 2019, §3.2)

    and an edge from it weighs c(u) / (s q(u)), c(u) being how often u came up in s draws: Σ is unbiased. Rows
    stay columns: their own value (self loops of P, root weights, residuals) is exact and not drawn.

    Args:
        sizes: draws, one count a hop, the seeds' first (the last layer's).
        linear: P; only off its diagonal (stored self loops are edges like others).
        normalise: scale the weights of every row to the sum that P has there, as LADIES divides P̃ by its row
            sums; the variance falls, and so does unbiasedness.

    Raises:
        InputError: no sizes, a size that is not positive, an unknown kind.

    Cost: O(edges into the rows) a hop, and for ladies twice that. fastgcn keeps 8 bytes a vertex.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Sequence[int],
        kind: Literal["fastgcn", "ladies"] = "ladies",
        *,
        linear: Linear | None = None,
        normalise: bool = False,
    ) -> None:
        faults = Faults("layer-wise sampling")
        faults.extend(check_counts("sizes", sizes))
        if kind not in ("fastgcn", "ladies"):
            faults.add(f"kind: must be fastgcn or ladies, got {kind!r}")
        faults.raise_if_any()
        self.sizes, self.kind, self.normalise = tuple(sizes), kind, normalise
        self._structure = Structure(graph)
        by = scales(graph, linear or Linear(), torch.float64)
        ones = torch.ones(graph.num_nodes, dtype=torch.float64)
        self._column = ones if by.c is None else by.c
        self._row_square = ones if by.r is None else by.r**2
        self._edge_square = ones[:0] if by.weight is None else by.weight**2
        everyone = torch.arange(graph.num_nodes)
        self._everyone = self._candidates(everyone) if kind == "fastgcn" else None
        self._row_sum = self._mass(graph.destinations, graph.indices, by.weight, graph.num_nodes)

    @property
    def num_units(self) -> int:
        """Seeds are vertices."""
        return self._structure.graph.num_nodes

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """See `Sampler`. `blocks[-1]` has the seeds as rows and holds the edges of `sizes[0]`."""
        from gnnpar.batch.loops.rows import set_marks

        seeds = check_index("layer-wise sampling", "seeds", seeds, self.num_units)
        vertices, hops = seeds, []
        with self._structure.mark() as mark:
            set_marks(mark, vertices.numpy())
            for hop, size in enumerate(self.sizes):
                sources, factor = self._draw(vertices, size, key.words(hop))
                ends, edges, columns, places, vertices = self._connect(vertices, sources, mark)
                hops.append((ends, columns, edges, self._weights(ends, edges, factor[places])))
            mark[vertices.numpy()] = -1
        blocks: list[Block] = []
        ids, into, out = self._structure.about(vertices)
        for ends, columns, edges, factor in reversed(hops):
            count = blocks[-1].num_rows if blocks else vertices.numel()
            about = ids[:count], into[:count], out[:count]
            blocks.append(self._structure.block(about, ends, columns, edges, factor))
        return Batch(
            key,
            vertices,
            tuple(blocks),
            tuple(edges for _, _, edges, _ in reversed(hops)),
            torch.arange(seeds.numel()),
        )

    def probabilities(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """`(vertices, q)`: who may be drawn for a hop's rows, each draw with which probability, float64."""
        vertices, choice = self._everyone or self._candidates(rows)
        return vertices, choice.q

    def _candidates(self, rows: Tensor) -> tuple[Tensor, Choice]:
        from gnnpar.batch.loops.subgraphs import add_squares

        structure = self._structure
        with structure.mark() as mark:
            sources, sums = add_squares(
                structure.indptr,
                structure.indices,
                rows.numpy(),
                self._row_square[rows].numpy(),
                self._edge_square.numpy(),
                mark,
            )
        vertices = torch.from_numpy(sources)
        return vertices, Choice(torch.from_numpy(sums) * self._column[vertices] ** 2)

    def _draw(self, rows: Tensor, size: int, words: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Distinct sources, and by what the weight of their edges is multiplied."""
        vertices, choice = self._everyone or self._candidates(rows)
        if not rows.numel() or not bool(choice.q.any()):  # nobody to draw for, or from
            return vertices[:0], choice.q[:0]
        drawn, counts = torch.unique(choice(words, torch.arange(size)), return_counts=True)
        return vertices[drawn], counts / (size * choice.q[drawn])

    def _connect(self, rows: Tensor, sources: Tensor, mark: Any) -> tuple[Any, ...]:
        """The edges from the sources to the rows: ends, edges, columns, places in `sources`, all vertices."""
        from gnnpar.batch.loops.rows import relabel, set_marks
        from gnnpar.batch.loops.subgraphs import keep_marked

        structure = self._structure
        with structure.mark() as chosen:
            set_marks(chosen, sources.numpy())
            ends, edges, places = keep_marked(structure.indptr, structure.indices, rows.numpy(), chosen)
            chosen[sources.numpy()] = -1
        columns = sources.numpy()[places]
        reached = np.empty(rows.numel() + sources.numel() + 1, np.int64)
        reached[: rows.numel()] = rows.numpy()
        count = int(relabel(mark, reached, rows.numel(), columns))
        return ends, *map(torch.from_numpy, (edges, columns, places, reached[:count].copy()))

    def _weights(self, ends: Any, edges: Tensor, factor: Tensor) -> Tensor:
        structure = self._structure
        if self.normalise:
            graph = structure.graph
            sizes = torch.from_numpy(ends).diff()
            rows = torch.repeat_interleave(torch.arange(sizes.numel()), sizes)
            weight = None if graph.edge_weight is None else graph.edge_weight[edges].to(torch.float64)
            weight = factor if weight is None else factor * weight
            found = self._mass(rows, graph.indices[edges], weight, sizes.numel())[rows]
            there = self._row_sum[graph.destinations[edges]]
            factor = torch.where(found > 0, factor * there / found, 0.0)
        return factor.to(structure.dtype)

    def _mass(self, rows: Tensor, sources: Tensor, weight: Tensor | None, num_rows: int) -> Tensor:
        """`[num_rows]`: Σ of weight · column scale over the edges of every row."""
        value = self._column[sources]
        value = value if weight is None else value * weight
        return value.new_zeros(num_rows).index_add_(0, rows, value)
