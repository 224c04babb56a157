"""`Executor`: runs one rank's lowered program of actions. It knows no schedule by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from gnnpar.dist import Mesh, Message, Transport
from gnnpar.errors import RunError
from gnnpar.history import Reads
from gnnpar.model.trace import TensorSpec
from gnnpar.runtime.exchange import HistoryExchange
from gnnpar.runtime.interface import AnyStage, MicroBatch, StepReads
from gnnpar.runtime.reduce import Reduction
from gnnpar.runtime.stage import Payload
from gnnpar.runtime.weights import StageWeights
from gnnpar.schedule import Action, Kind, Schedule
from gnnpar.trace import Recorder

__all__ = ["Executor", "StageKey"]

StageKey = tuple[int, int]
"""(replica, stage)."""

_RECEIVES = {Kind.RECV_F, Kind.RECV_B}
_POSTED_AHEAD = 3
"""Receives posted before they are needed: enough to hide latency, few enough to keep memory flat."""
_TENSORS_PER_PAYLOAD = 64


_Payloads = dict[int, dict[MicroBatch, Payload]]

_Crossing = tuple[int, int, int, Kind, int]
"""(replica, stage it comes from, stage it goes to, F or B, micro-batch)."""


@dataclass(slots=True)
class _Step:
    """What is in flight during one step. Payloads wait under the edge they cross."""

    schedule: Schedule
    mesh: Mesh
    column: int
    reads: StepReads
    number: int
    splits: bool
    refreshes: bool
    payloads: dict[_Crossing, dict[MicroBatch, Payload]] = field(default_factory=dict)
    posted: dict[Action, dict[MicroBatch, Message]] = field(default_factory=dict)
    sends: list[Message] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    loss: Tensor | None = None


class Executor:
    """Interprets schedules for one rank.

    Args:
        stages: the stages of this rank, by (replica, stage).
        recorder: gets a span for every action.
        device: of the payloads.
        mesh: the ways of every rank of the schedules; None: one each.
        histories: where replicas run different chunks of one graph.

    Attributes:
        weights: of every stage, where updates do not wait for all passes; then STEP makes them. Else whoever
            runs the program updates at its end.
    """

    def __init__(
        self,
        rank: int,
        stages: Mapping[StageKey, AnyStage],
        transport: Transport,
        recorder: Recorder,
        device: torch.device,
        mesh: Mesh | None = None,
        histories: HistoryExchange | None = None,
    ) -> None:
        self.rank = rank
        self.mesh = mesh
        self.histories = histories
        self.stages = dict(stages)
        self.weights: Mapping[StageKey, StageWeights] = {}
        self.transport = transport
        self.recorder = recorder
        self.device = device

    def run(self, schedule: Schedule, reads: StepReads, step: int) -> Tensor | None:
        """Run one step up to its updates; returns this rank's share of the loss, where it holds a last stage.

        When it returns, gradients are complete: reduced over all who hold a stage, and none left to do. A
        schedule without backwards refreshes the histories, and there is neither loss nor gradient.
        """
        mesh = self.mesh or Mesh((1,) * schedule.num_ranks, 1)
        column, _ = mesh.place_of(self.rank)
        program = [action for item in schedule.ranks[column] for action in item.parts]
        rereads = any(held.policy.rereads for held in self.weights.values())
        splits = rereads or any(action.kind is Kind.I for action in program)
        refreshes = not any(action.kind in (Kind.B, Kind.I) for action in program)
        state = _Step(schedule, mesh, column, reads, step, splits, refreshes)
        waiting = deque(action for action in program if action.kind in _RECEIVES)
        ahead = _POSTED_AHEAD if self.transport.matches_by_tag else 0
        for action in program:
            while waiting and (len(state.posted) < ahead or waiting[0] is action):
                self._post(waiting.popleft(), state)
            batch = action.micro_batches[0] if action.micro_batches else -1
            with self.recorder.span(action.kind.name, str(action), stage=action.stage, batch=batch):
                self._do(action, state)
        for reduction in state.reductions:
            with self.recorder.span("REDUCE", stage=reduction.stage):
                reduction.finish(state.reductions)
        for message in state.sends:
            self.transport.finish(message)
        if self.histories is not None and reads.kept:
            with self.recorder.span("history"):
                self.histories.run(schedule, mesh, cast(Reads, reads))
        for stage in self.stages.values():
            stage.release()
        return state.loss

    def settle(self) -> None:
        """Wait for messages of the step that nothing in it needed."""
        for stage in self.stages.values():
            if stage.halo is not None:
                stage.halo.settle()

    def _do(self, action: Action, state: _Step) -> None:
        if action.kind is Kind.F:
            for batch in action.micro_batches:
                self._forward(action, batch, state)
        elif action.kind in (Kind.B, Kind.I):
            for batch in action.micro_batches:
                self._backward(action, batch, state)
        elif action.kind is Kind.W:
            chunks = [chunk for batch in action.micro_batches for chunk in self._own(batch, state)]
            self._stage(action).weight_gradients(chunks)
        elif action.kind in _RECEIVES:
            messages = state.posted.pop(action)
            arrived = {chunk: self.transport.finish(message) for chunk, message in messages.items()}
            state.payloads[_crossing(action)] = arrived
        elif action.kind in (Kind.SEND_F, Kind.SEND_B):
            self._send(action, state)
        elif action.kind is Kind.REDUCE:
            state.reductions.append(
                Reduction.start(action, state.schedule, state.mesh, self.stages, self.transport)
            )
        elif action.kind is Kind.STEP:
            if self.weights:
                self.weights[action.replica, action.stage].step()
        else:
            raise RunError(f"rank {self.rank}: {action}: no way to run {action.kind.name}")

    def _stage(self, action: Action) -> AnyStage:
        return self.stages[action.replica, action.stage]

    def _own(self, batch: int, state: _Step) -> tuple[MicroBatch, ...]:
        """What of a slot this way of its column runs."""
        slot, mesh = state.reads.slots[batch], state.mesh
        return tuple(chunk for chunk in slot if mesh.owner(state.column, chunk.index) == self.rank)

    def _forward(self, action: Action, batch: int, state: _Step) -> None:
        stage, slot = self._stage(action), self._own(batch, state)
        payloads = self._arrived(action, Kind.F, batch, stage.receives, state)
        reads = state.reads.of(action.replica)
        if self.weights and not state.refreshes:
            self.weights[action.replica, action.stage].forward(batch)
        if state.refreshes:
            out = stage.refresh(slot, payloads, reads, state.number)
        else:
            out = stage.forward(slot, payloads, reads, state.number, split=state.splits)
            if stage.targets is not None:
                loss = stage.loss(slot)
                if state.schedule.num_updates > 1:
                    loss = loss * reads.loss_share(slot[0])
                state.loss = loss if state.loss is None else state.loss + loss
        self._hand_over(action, Kind.F, batch, out, state)

    def _backward(self, action: Action, batch: int, state: _Step) -> None:
        stage, slot = self._stage(action), self._own(batch, state)
        sources = () if state.schedule.detached else stage.sends
        gradients = self._arrived(action, Kind.B, batch, sources, state)
        if self.weights:
            self.weights[action.replica, action.stage].backward(batch)
        out = stage.backward(slot, gradients, state.reads.of(action.replica), state.number)
        if action.kind is Kind.B and state.splits:
            stage.weight_gradients(slot)
        if not state.schedule.detached:
            self._hand_over(action, Kind.B, batch, out, state)

    def _arrived(
        self, action: Action, kind: Kind, batch: int, sources: Iterable[int], state: _Step
    ) -> _Payloads:
        stage, pop = action.stage, state.payloads.pop
        return {source: pop((action.replica, source, stage, kind, batch)) for source in sources}

    def _hand_over(
        self,
        action: Action,
        kind: Kind,
        batch: int,
        out: Mapping[int, dict[MicroBatch, Payload]],
        state: _Step,
    ) -> None:
        """Leave results where the neighbouring stage on this rank, or the SEND that follows, finds them."""
        for target, payloads in out.items():
            state.payloads[action.replica, action.stage, target, kind, batch] = payloads

    def _send(self, action: Action, state: _Step) -> None:
        assert action.peer is not None
        column = state.schedule.rank_of(action.peer, action.replica)
        out = state.payloads.pop(_crossing(action))
        for number, chunk in enumerate(state.reads.slots[action.micro_batch]):
            if chunk in out:
                peer, tag = state.mesh.owner(column, chunk.index), _tag(state, action, number)
                what = _describe(action, chunk)
                state.sends.append(self.transport.send(out[chunk], peer, tag, "stage", what))

    def _post(self, action: Action, state: _Step) -> None:
        assert action.peer is not None
        column = state.schedule.rank_of(action.peer, action.replica)
        stage, own = self._stage(action), self._own(action.micro_batch, state)
        specs: Sequence[TensorSpec] = (
            stage.receives[action.peer]
            if action.kind is Kind.RECV_F
            else [spec for spec in stage.sends[action.peer] if spec.needs_grad]
        )
        num_rows = stage.num_rows_in if action.kind is Kind.RECV_F else stage.num_rows_out
        reads = state.reads.of(action.replica)
        state.posted[action] = {}
        for number, chunk in enumerate(state.reads.slots[action.micro_batch]):
            if chunk in own:
                peer, tag = state.mesh.owner(column, chunk.index), _tag(state, action, number)
                buffers, what = self.empty_payload(num_rows(chunk, reads), specs), _describe(action, chunk)
                state.posted[action][chunk] = self.transport.receive(buffers, peer, tag, what)

    def empty_payload(self, num_rows: int, specs: Sequence[TensorSpec]) -> Payload:
        """Buffers for the payload of a micro-batch: both ends know its rows, they are never negotiated."""
        return [torch.empty(num_rows, *spec.tail, dtype=spec.dtype, device=self.device) for spec in specs]


def _crossing(action: Action) -> _Crossing:
    """What a SEND or RECV brings from one stage to another."""
    assert action.peer is not None
    kind = Kind.F if action.kind in (Kind.SEND_F, Kind.RECV_F) else Kind.B
    ends = action.stage, action.peer
    source, target = ends if action.kind in (Kind.SEND_F, Kind.SEND_B) else ends[::-1]
    return action.replica, source, target, kind, action.micro_batch


def _tag(state: _Step, action: Action, number: int) -> int:
    """The same on both sides; distinct for all messages of a step between two ranks.

    Args:
        number: place of the chunk in its slot.
    """
    schedule = state.schedule
    replica, source, target, kind, batch = _crossing(action)
    edge = schedule.stage_edges.index((min(source, target), max(source, target)))
    size = len(state.reads.slots[0])
    place = batch * size + number
    width = schedule.num_micro_batches * size
    channel = (replica * len(schedule.stage_edges) + edge) * 2 + (kind is Kind.B)
    return (channel * width + place) * _TENSORS_PER_PAYLOAD


def _describe(action: Action, chunk: MicroBatch) -> str:
    return f"{action} ({chunk})"
