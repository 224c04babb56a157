"""The eight steps that DualPipe and DualPipeV share."""

from __future__ import annotations

from collections import deque

from gnnpar.schedule.action import Action, Compound, Item, Kind

__all__ = ["eight_steps"]

# A chunk of a rank: its stage, its replica and its micro-batches in order.
Chunk = tuple[int, int, range]


class _Order:
    """A rank's order under construction: each chunk takes its micro-batches in turn."""

    def __init__(self, chunks: tuple[Chunk, Chunk]) -> None:
        self.items: list[Item] = []
        self._chunks = chunks
        self._next = {(kind, chunk): 0 for kind in (Kind.F, Kind.B) for chunk in (0, 1)}
        self._weights: deque[Action] = deque()

    def _take(self, kind: Kind, chunk: int) -> Action:
        stage, replica, batches = self._chunks[chunk]
        batch = batches[self._next[kind, chunk]]
        self._next[kind, chunk] += 1
        return Action(kind, stage, (batch,), replica)

    def forward(self, chunk: int) -> None:
        self.items.append(self._take(Kind.F, chunk))

    def backward(self, chunk: int, *, split: bool = False) -> None:
        whole = self._take(Kind.B, chunk)
        if not split:
            self.items.append(whole)
            return
        self.items.append(Action(Kind.I, whole.stage, whole.micro_batches, whole.replica))
        self._weights.append(Action(Kind.W, whole.stage, whole.micro_batches, whole.replica))

    def weight(self) -> None:
        self.items.append(self._weights.popleft())

    def both(self, forward: int, backward: int) -> None:
        self.items.append(Compound((self._take(Kind.F, forward), self._take(Kind.B, backward))))


def eight_steps(depth: int, place: int, batches: int, chunks: tuple[Chunk, Chunk]) -> list[Item]:
    """The order of the rank at ``place`` of ``depth`` (the turn is at depth−1), ``batches`` for each chunk.

    Chunk 0 is the one on its way to the turn, chunk 1 the one on its way back.
    """
    order, inner = _Order(chunks), depth - place - 1
    for _ in range(2 * inner):
        order.forward(0)
    for _ in range(place + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(inner):
        order.backward(1, split=True)
        order.weight()
        order.forward(1)
    for turn in range(batches - 2 * depth + place + 1):
        if turn == 0 and inner == 0:
            # At the turn the backward waits for the forward just done, so there is nothing to overlap yet.
            order.forward(0)
            order.backward(1)
        else:
            order.both(0, 1)
        order.both(1, 0)
    for _ in range(inner):
        order.backward(1)
        order.both(1, 0)
    # Half of these 2(place + 1) backwards are split, from the middle on.
    for number in range(place + 1):
        order.backward(1, split=2 * number >= place + 1)
        order.backward(0, split=2 * number + 1 >= place + 1)
    for _ in range(inner):
        order.weight()
        order.backward(0, split=True)
    for _ in range(place + 1):
        order.weight()
    return order.items
