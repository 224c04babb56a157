"""Which seeds go into which batch of which rank."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnpar.batch.sampled import BatchKey
from gnnpar.batch.structure import count_faults, index_faults
from gnnpar.errors import Faults, InputError
from gnnpar.graph.kernels.keys import row_words

__all__ = ["SeedBatches"]


class SeedBatches:
    """The seeds of an epoch, shuffled and cut into batches: a function of (seed, epoch, step, rank) alone.

    Step t takes the next `size · num_ranks` seeds of the epoch and deals them out evenly, so that ranks
    differ by one seed at most, and every rank has the same number of steps. The last step is smaller than
    the others; a rank that it leaves without seeds gets an empty batch, never none.

    Args:
        index: `[n]` seeds: vertices to train on, clusters, draws; any distinct numbers, in any order.
        size: seeds of a batch, one rank's share of a step.
        seed: of the run. num_ranks: that take part in every step.
        shuffle: otherwise seeds come in the order of `index`.

    Raises:
        InputError: an index that is not distinct integers, a size or a number of ranks that is not positive.
    """

    def __init__(
        self, index: Tensor, size: int, *, seed: int = 0, num_ranks: int = 1, shuffle: bool = True
    ) -> None:
        faults = Faults("seed batches")
        faults.extend(index_faults("index", index))
        if not faults and (repeats := index.numel() - torch.unique(index).numel()):
            faults.add(f"index: {repeats} of {index.numel()} seeds are repeats of others")
        faults.extend(count_faults(size=size, num_ranks=num_ranks))
        faults.raise_if_any()
        self.index = index.to("cpu", torch.int64)
        self.size, self.seed, self.num_ranks, self.shuffle = size, seed, num_ranks, shuffle
        self._known: tuple[int, Tensor] | None = None

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, the same for every rank."""
        return -(-self.index.numel() // (self.size * self.num_ranks))

    def order(self, epoch: int) -> Tensor:
        """`[n]`: all seeds in the order of an epoch. Cost: a sort, unless seeds are not shuffled."""
        if not self.shuffle:
            return self.index
        words = BatchKey(self.seed, epoch, 0).words(-2)
        high, low = row_words(torch.arange(self.index.numel()), *words)
        return self.index[torch.argsort((high << 31) ^ low, stable=True)]

    def step(self, epoch: int, step: int) -> list[tuple[BatchKey, Tensor]]:
        """The batch of every rank in one step of an epoch, by rank. Cost: that of `order` in a new epoch."""
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self.order(epoch)
        return self._deal(self._known[1], epoch, step)

    def _deal(self, order: Tensor, epoch: int, step: int) -> list[tuple[BatchKey, Tensor]]:
        ranks = self.num_ranks
        seeds = order[step * self.size * ranks : (step + 1) * self.size * ranks]
        keys = (BatchKey(self.seed, epoch, step * ranks + rank) for rank in range(ranks))
        return list(zip(keys, torch.tensor_split(seeds, ranks), strict=True))

    def epoch(self, epoch: int, rank: int = 0) -> list[tuple[BatchKey, Tensor]]:
        """The batches of a rank: keys, which no two ranks share, and seeds `[≤ size]`, views of one
        tensor.

        Raises:
            InputError: no such rank.
        """
        if not 0 <= rank < self.num_ranks:
            raise InputError("seed batches", [f"rank: must be in 0..{self.num_ranks - 1}, got {rank}"])
        order = self.order(epoch)
        return [self._deal(order, epoch, step)[rank] for step in range(self.num_steps)]
