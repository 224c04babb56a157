"""GraphSAINT: subgraphs of drawn vertices, edges or walks, with the weights that undo their bias."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnpar.batch.cluster import carries
from gnnpar.batch.saint_draws import Draws
from gnnpar.batch.sampled import Batch, BatchKey
from gnnpar.batch.structure import Structure, check_index, count_faults
from gnnpar.errors import InputError

__all__ = ["SaintSampler", "inclusion"]


class SaintSampler:
    """The subgraph induced by what some independent draws reach (Zeng et al. 2020, algorithms 1 and 2).

    Seeds are numbers of draws, `0..num_draws-1` in an epoch: a draw is a function of its number and the
    batch's key, and how many there are in a batch is its budget. With p(v) and p(u, v) the probabilities
    that a batch of this many draws has v, and has both ends of u → v:

        edge weight = the graph's own · p(v) / p(u, v)    the aggregator normalisation 1 / α(u, v), §3.2
        loss weight = 1 / (n · p(v))                      the loss normalisation 1 / λ(v), n = |index|

    so both the aggregation of a vertex that is there and the loss are unbiased, also in a last batch of fewer
    draws. The paper counts pre-drawn subgraphs; here p follows from what one draw does (`inclusion`).

    Args:
        draws: what a draw is: `node_draws`, `edge_draws` or `walk_draws`, made for this graph.
        index: `[n]` vertices that carry loss.
        num_draws: in an epoch. The vertices divided by those that a draw reaches, say.

    Raises:
        InputError: an index that leaves the graph, `num_draws` not positive.

    Cost of a batch: O(edges into its vertices).
    """

    def __init__(self, draws: Draws, index: Tensor, num_draws: int) -> None:
        title = "GraphSAINT sampling"
        if faults := count_faults(num_draws=num_draws):
            raise InputError(title, faults)
        self.num_draws = num_draws
        self._draws = draws
        self._structure = Structure(draws.graph)
        self._carries = carries(draws.graph, index, title)
        self._num_index = int(self._carries.sum())

    @property
    def num_units(self) -> int:
        """Seeds are draws."""
        return self.num_draws

    def sample(self, seeds: Tensor, key: BatchKey) -> Batch:
        """See `Sampler`. Vertices ascend. One block for all layers; its degrees are those of the whole
        graph."""
        seeds = check_index("GraphSAINT sampling", "draws", seeds, self.num_units, distinct=True)
        structure, draws, count = self._structure, self._draws, seeds.numel()
        vertices = torch.unique(draws.reach(seeds, key))
        ends, edges, columns = structure.induced(vertices)
        rows = torch.repeat_interleave(torch.arange(vertices.numel()), torch.from_numpy(ends).diff())
        visit, pair = draws.visit[vertices], draws.pair[edges]
        alone = inclusion(visit, count)
        both = alone[columns] + alone[rows] - inclusion(visit[columns] + visit[rows] - pair, count)
        factor = (alone[rows] / both).to(structure.dtype)
        targets = self._carries[vertices].nonzero()[:, 0]
        return Batch(
            key,
            vertices,
            (structure.block(structure.about(vertices), ends, columns, edges, factor),),
            (edges,),
            targets,
            (1 / (self._num_index * alone[targets])).to(structure.dtype),
        )


def inclusion(per_draw: Tensor, count: int) -> Tensor:
    """Probability that one of `count` independent draws does what a single one does with `per_draw`."""
    return -torch.expm1(count * torch.log1p(-per_draw.clamp(max=1.0)))
