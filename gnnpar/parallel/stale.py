"""`StaleHalo`: rows and gradients of other ways as they were one step before (PipeGCN)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.history import Reads
from gnnpar.parallel.halo import Halo, Route, What

__all__ = ["StaleHalo"]


class StaleHalo(Halo):
    """Reads what the others sent in the last step, while what it sends now travels behind its computation
    (PipeGCN, Wan et al. 2022, Algorithm 1 and §3.4). Of every exchange, forward and backward, in step t:

        x̂(t) = s · x̂(t - 1) + (1 - s) · x(t - 1)        s: smoothing; 0 reads x(t - 1) itself

    where x are the rows that the peer sent. A gradient that arrives late is added to the current one. So one
    exchange is read, and one is sent, in every step; bytes are those of `Halo`.

    Two differences from the paper: warm-up steps are exact, and x̂ starts from their last rows (the paper
    starts from zeros); and x is the cut, which dropout has passed already (the authors' code draws a fresh
    mask over stale rows).

    Args:
        smoothing: s of the cut, s of gradients.
    """

    def __init__(
        self,
        chunked: ChunkedGraph,
        mesh: Mesh,
        column: int,
        way: int,
        transport: Transport,
        smoothing: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        super().__init__(chunked, mesh, column, way, transport)
        self.smoothing = smoothing
        self._known: dict[tuple[int, What], list[Tensor]] = {}
        self._flying: dict[tuple[int, What], Iterable[Tensor]] = {}

    def settle(self) -> None:
        """Take in what the others sent in this step, for the next one."""
        for key in tuple(self._flying):
            features, gradients = self.smoothing
            self._land(key, features if key[1] == "cut" else gradients)

    def _exchange(
        self,
        routes: Sequence[Route],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        slot: Sequence[Chunk],
        reads: Reads,
        layer: int,
        what: What,
    ) -> list[Tensor]:
        key = layer, what
        self._flying[key] = super()._exchange(routes, outgoing, incoming, slot, reads, layer, what)
        exact = reads.planner.policy.is_exact(reads.step)
        if exact:
            self._land(key, 0.0)
        if what == "cut":
            count = sum(index.numel() for index in incoming)
            self.transport.recorder.count_rows(0 if exact else 1, count)
        return self._known[key]

    def _land(self, key: tuple[int, What], smoothing: float) -> None:
        arrived = list(self._flying.pop(key))
        if smoothing:
            arrived = [
                old.mul_(smoothing).add_(new, alpha=1.0 - smoothing)
                for old, new in zip(self._known[key], arrived, strict=True)
            ]
        self._known[key] = arrived
