"""`Executor`: runs one rank's lowered program of actions. It knows no schedule by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.dist import Message, Transport
from gnnpar.history import Reads
from gnnpar.model.trace import TensorSpec
from gnnpar.runtime.stage import Payload, Stage
from gnnpar.schedule import Action, Kind, Schedule
from gnnpar.trace import Recorder

__all__ = ["Executor"]

_RECEIVES = {Kind.RECV_F, Kind.RECV_B}
_POSTED_AHEAD = 3
"""Receives posted before they are needed: enough to hide latency, few enough to keep memory flat."""


@dataclass(slots=True)
class _Step:
    """What is in flight during one step."""

    reads: Reads
    number: int
    payloads: dict[tuple[int, Kind, int], dict[Chunk, Payload]] = field(default_factory=dict)
    sends: list[Message] = field(default_factory=list)
    loss: Tensor | None = None


class Executor:
    """Interprets schedules for one rank.

    Args:
        stages: the stages of this rank, by number.
        recorder: gets a span for every action.
        device: of the payloads.
    """

    def __init__(
        self,
        rank: int,
        stages: Mapping[int, Stage],
        transport: Transport,
        recorder: Recorder,
        device: torch.device,
    ) -> None:
        self.rank = rank
        self.stages = dict(stages)
        self.transport = transport
        self.recorder = recorder
        self.device = device

    def run(self, schedule: Schedule, reads: Reads, step: int) -> Tensor | None:
        """Run one step up to (not including) STEP; returns the loss where this rank holds the last stage."""
        state = _Step(reads, step)
        program = [action for item in schedule.ranks[self.rank] for action in item.parts]
        waiting = deque(action for action in program if action.kind in _RECEIVES)
        posted: dict[Action, dict[Chunk, Message]] = {}
        for action in program:
            while waiting and len(posted) < _POSTED_AHEAD:
                ahead = waiting.popleft()
                posted[ahead] = self._post(schedule, ahead, state)
            with self.recorder.span(action.kind.name, str(action)):
                self._do(schedule, action, posted, state)
        for message in state.sends:
            self.transport.finish(message)
        return state.loss

    def _do(
        self, schedule: Schedule, action: Action, posted: dict[Action, dict[Chunk, Message]], state: _Step
    ) -> None:
        if action.kind is Kind.F:
            self._forward(schedule, action, state)
        elif action.kind is Kind.B:
            self._backward(schedule, action, state)
        elif action.kind in _RECEIVES:
            what = Kind.F if action.kind is Kind.RECV_F else Kind.B
            arrived = {chunk: self.transport.finish(message) for chunk, message in posted.pop(action).items()}
            state.payloads[action.stage, what, action.micro_batch] = arrived
        elif action.kind in (Kind.SEND_F, Kind.SEND_B):
            self._send(schedule, action, state)

    def _forward(self, schedule: Schedule, action: Action, state: _Step) -> None:
        stage, batch = self.stages[action.stage], action.micro_batch
        slot = state.reads.slots[batch]
        payloads = state.payloads.pop((action.stage, Kind.F, batch), {})
        out = stage.forward(slot, payloads, state.reads, state.number)
        if stage.targets is not None:
            loss = stage.loss(slot)
            state.loss = loss if state.loss is None else state.loss + loss
        self._hand_over(schedule, action, Kind.F, out, schedule.successors(action.stage), state)

    def _backward(self, schedule: Schedule, action: Action, state: _Step) -> None:
        batch = action.micro_batch
        gradients = state.payloads.pop((action.stage, Kind.B, batch), {})
        stage = self.stages[action.stage]
        out = stage.backward(state.reads.slots[batch], gradients, state.reads, state.number)
        self._hand_over(schedule, action, Kind.B, out, schedule.predecessors(action.stage), state)

    def _hand_over(
        self,
        schedule: Schedule,
        action: Action,
        kind: Kind,
        out: dict[Chunk, Payload],
        to: Sequence[int],
        state: _Step,
    ) -> None:
        """Leave a result where the neighbouring stage on this rank, or the SEND that follows, finds it."""
        for neighbour in to:
            here = schedule.rank_of(neighbour, action.replica) == self.rank
            where = neighbour if here else action.stage
            key = Kind.SEND_F if kind is Kind.F else Kind.SEND_B
            state.payloads[where, kind if here else key, action.micro_batch] = out

    def _send(self, schedule: Schedule, action: Action, state: _Step) -> None:
        assert action.peer is not None
        peer = schedule.rank_of(action.peer, action.replica)
        out = state.payloads.pop((action.stage, action.kind, action.micro_batch))
        for number, (chunk, payload) in enumerate(out.items()):
            tag = self._tag(action.kind, action.micro_batch, number, state)
            state.sends.append(self.transport.send(payload, peer, tag, "stage", _describe(action, chunk)))

    def _post(self, schedule: Schedule, action: Action, state: _Step) -> dict[Chunk, Message]:
        assert action.peer is not None
        peer = schedule.rank_of(action.peer, action.replica)
        stage = self.stages[action.stage]
        specs = stage.receives if action.kind is Kind.RECV_F else [s for s in stage.sends if s.needs_grad]
        posted = {}
        for number, chunk in enumerate(state.reads.slots[action.micro_batch]):
            buffers = self.empty_payload(chunk, specs)
            sent_as = Kind.SEND_F if action.kind is Kind.RECV_F else Kind.SEND_B
            tag = self._tag(sent_as, action.micro_batch, number, state)
            posted[chunk] = self.transport.receive(buffers, peer, tag, _describe(action, chunk))
        return posted

    def empty_payload(self, chunk: Chunk, specs: Sequence[TensorSpec]) -> Payload:
        """Buffers for one chunk's payload: sizes follow from the chunk, they are never negotiated."""
        return [
            torch.empty(chunk.num_rows, *spec.tail, dtype=spec.dtype, device=self.device) for spec in specs
        ]

    def _tag(self, kind: Kind, batch: int, number: int, state: _Step) -> int:
        """The same on both sides; distinct for all messages of a step between two ranks."""
        place = batch + number  # one of them is 0: slots of one chunk, or one slot of all chunks
        return (place * 2 + (kind is Kind.SEND_B)) * _TENSORS_PER_PAYLOAD


_TENSORS_PER_PAYLOAD = 64


def _describe(action: Action, chunk: Chunk) -> str:
    return f"{action} (chunk {chunk.index}, rows {chunk.start} to {chunk.stop})"
