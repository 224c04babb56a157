"""`Reduction`: sums the gradients of one stage over the replicas that hold it, while other actions go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.dist import Message, Transport
from gnnpar.runtime.stage import Stage
from gnnpar.schedule import Action, Schedule

__all__ = ["Reduction"]

_TAG = 1 << 28
"""Gradients are tagged apart from payloads."""


@dataclass(frozen=True)
class Reduction:
    """A REDUCE under way on one rank.

    Replicas add up in the order of their numbers, so that they hold the same bits afterwards.

    Attributes:
        own: this replica's gradients, flat, as they were when the reduction began.
        arriving: gradients of the replicas on other ranks, by replica.
    """

    replica: int
    stage: int
    parameters: list[Parameter]
    own: Tensor
    arriving: dict[int, Message]
    transport: Transport
    sends: list[Message]

    @classmethod
    def start(
        cls, action: Action, schedule: Schedule, stages: Mapping[tuple[int, int], Stage], transport: Transport
    ) -> Reduction:
        """Send this replica's gradients of `action.stage` to the others, and post receives for theirs."""
        parameters = stages[action.replica, action.stage].parameters()
        own = _flat(parameters)
        arriving: dict[int, Message] = {}
        sends: list[Message] = []
        rank = schedule.rank_of(action.stage, action.replica)
        for other in range(schedule.num_replicas):
            peer = schedule.rank_of(action.stage, other)
            if peer == rank:
                continue
            tag = _tag(schedule, action.stage, action.replica, other)
            back = _tag(schedule, action.stage, other, action.replica)
            what = f"{action} with replica {other}"
            sends.append(transport.send([own], peer, tag, "weight", what))
            arriving[other] = transport.receive([torch.empty_like(own)], peer, back, what)
        return cls(action.replica, action.stage, parameters, own, arriving, transport, sends)

    def finish(self, here: Sequence[Reduction]) -> None:
        """Wait for the others and write the sum into this replica's `.grad`.

        Args:
            here: all reductions of this rank, which may hold several replicas of a stage.
        """
        parts = {one.replica: one.own for one in here if one.stage == self.stage}
        for other, message in self.arriving.items():
            parts[other] = self.transport.finish(message)[0]
        total = torch.stack([parts[replica] for replica in sorted(parts)]).sum(0)
        offset = 0
        for parameter in self.parameters:
            size = parameter.numel()
            parameter.grad = total[offset : offset + size].view_as(parameter).clone()
            offset += size
        for message in self.sends:
            self.transport.finish(message)


def _tag(schedule: Schedule, stage: int, sender: int, receiver: int) -> int:
    count = schedule.num_replicas
    return _TAG + (stage * count + sender) * count + receiver


def _flat(parameters: list[Parameter]) -> Tensor:
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    return torch.cat([gradient.flatten() for gradient in gradients]) if gradients else torch.zeros(0)
