"""`BoundedHalo`: rows of other ways as they were last sent, under a bound on their staleness (SANCUS)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Mesh, Message, Transport
from gnnpar.history import Reads
from gnnpar.parallel.halo import Halo, Route, What

__all__ = ["BoundedHalo"]

_FLAG_TAG = 5 << 27
"""Apart from the tags of rows, payloads, evaluation, gradients and histories."""


@dataclass(frozen=True)
class _Kept:
    """Rows `[n, K]` that went over a route, and the step in which they did."""

    rows: Tensor
    step: int


class BoundedHalo(Halo):
    """Sends the rows of a layer to a way only where they are overdue, and reads what it has until then
    (SANCUS, Peng et al. 2022: skipped broadcasts, bounded staleness of embeddings). They are due

    * in warm-up steps, and `period` steps after they were last sent: both ends know;
    * where they have changed by more than `bound`, relative to what was sent (‖x - sent‖ / ‖sent‖ over all
      rows of the message): their owner decides, and says so by one byte of kind `control`.

    So with period 1 or bound 0 the exchange is exact. Rows are the cut, after dropout: a new mask of rate p
    alone changes them by about √(2p), so a bound below that sends them in every step.

    Gradients are exchanged in every step, as in the authors' code, which caches forward broadcasts only; a
    row read late receives gradients as if it were the current one. The paper's broadcasts go to all at once;
    here a way skips each of the others by itself.

    Args:
        period: in steps. bound: None for no limit but the period.
    """

    def __init__(
        self,
        chunked: ChunkedGraph,
        mesh: Mesh,
        column: int,
        way: int,
        transport: Transport,
        period: int,
        bound: float | None = None,
    ) -> None:
        super().__init__(chunked, mesh, column, way, transport)
        self.period = period
        self.bound = bound
        self._sent: dict[tuple[int, int], _Kept] = {}
        self._held: dict[tuple[int, int], _Kept] = {}

    def _exchange(
        self,
        routes: Sequence[Route],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        slot: Sequence[Chunk],
        reads: Reads,
        layer: int,
        what: What,
    ) -> Iterable[Tensor]:
        if what != "cut":
            return super()._exchange(routes, outgoing, incoming, slot, reads, layer, what)
        keys = [(layer, route.peer) for route in routes]
        goes = [self._overdue(self._sent.get(key), reads) for key in keys]
        comes = [self._overdue(self._held.get(key), reads) for key in keys]
        if self.bound is not None:
            goes, comes = self._decide(keys, goes, comes, outgoing, incoming)
        out = [rows if go else rows[:0] for rows, go in zip(outgoing, goes, strict=True)]
        back = [index if come else index[:0] for index, come in zip(incoming, comes, strict=True)]
        arrived = super()._exchange(routes, out, back, slot, reads, layer, what)
        for key, rows, go, fresh, come in zip(keys, outgoing, goes, arrived, comes, strict=True):
            if go:
                self._sent[key] = _Kept(rows, reads.step)
            if come:
                self._held[key] = _Kept(fresh, reads.step)
            held = self._held[key]
            self.transport.recorder.count_rows(reads.step - held.step, held.rows.shape[0])
        return [self._held[key].rows for key in keys]

    def _overdue(self, kept: _Kept | None, reads: Reads) -> bool:
        exact = reads.planner.policy.is_exact(reads.step)
        return exact or kept is None or reads.step - kept.step >= self.period

    def _decide(
        self,
        keys: Sequence[tuple[int, int]],
        goes: list[bool],
        comes: list[bool],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
    ) -> tuple[list[bool], list[bool]]:
        """Which rows go and come, given which are overdue; the others are settled with each peer."""
        messages: list[Message] = []
        flags: list[Tensor | None] = []
        for place, (layer, peer) in enumerate(keys):
            rows, ask = outgoing[place], not comes[place] and incoming[place].numel() > 0
            mine: list[Tensor] = []
            if not goes[place] and rows.shape[0] > 0:
                goes[place] = self._changed(self._sent[layer, peer].rows, rows)
                mine = [torch.tensor([goes[place]], dtype=torch.uint8, device=rows.device)]
            flags.append(rows.new_empty(1, dtype=torch.uint8) if ask else None)
            theirs = [flag for flag in flags[-1:] if flag is not None]
            tag = _FLAG_TAG + layer
            text = f"whether rows of layer {layer} are sent"
            messages += self.transport.swap(mine, theirs, peer, (tag, tag), "control", text)
        for message in messages:
            self.transport.finish(message)
        told = [come or (flag is not None and bool(flag)) for come, flag in zip(comes, flags, strict=True)]
        return goes, told

    def _changed(self, sent: Tensor, rows: Tensor) -> bool:
        assert self.bound is not None
        change = torch.linalg.vector_norm(rows - sent)
        return bool(change > self.bound * torch.linalg.vector_norm(sent))
