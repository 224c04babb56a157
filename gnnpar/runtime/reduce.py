"""`Reduction`: sums the gradients of one stage over all who hold it, while other actions go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.dist import Mesh, Message, Transport
from gnnpar.model.norm import BatchNorm
from gnnpar.runtime.stage import Stage
from gnnpar.schedule import Action, Schedule

__all__ = ["Reduction", "holders"]

_TAG = 1 << 28
"""Gradients are tagged apart from payloads."""


@dataclass(frozen=True)
class Reduction:
    """A REDUCE under way on one process.

    A stage is held by the ways of each of its replicas. All add up in the order of (replica, way), so that
    they hold the same bits afterwards. Every holder sends its gradients to every other one: h · (h - 1) times
    their size for h holders. What batch norms saw of the step travels along, and is merged in the same order.

    Attributes:
        holder: (replica, process).
        own: this holder's gradients, flat, as they were when the reduction began; then what its norms saw.
        arriving: the same of the holders in other processes.
    """

    holder: tuple[int, int]
    stage: int
    parameters: list[Parameter]
    norms: list[BatchNorm]
    own: list[Tensor]
    arriving: dict[tuple[int, int], Message]
    transport: Transport
    sends: list[Message]

    @classmethod
    def start(
        cls,
        action: Action,
        schedule: Schedule,
        mesh: Mesh,
        stages: Mapping[tuple[int, int], Stage],
        transport: Transport,
    ) -> Reduction:
        """Send this holder's gradients of `action.stage` to the others, and post receives for theirs."""
        stage = stages[action.replica, action.stage]
        parameters, norms = stage.parameters(), stage.batch_norms()
        own = [_flat(parameters)]
        if norms:
            own.append(torch.cat([norm.pending() for norm in norms]))
        arriving: dict[tuple[int, int], Message] = {}
        sends: list[Message] = []
        rank = transport.context.rank
        for other, peer in holders(schedule, mesh, action.stage):
            if peer == rank:
                continue
            tag = _tag(schedule, action.stage, action.replica, other)
            back = _tag(schedule, action.stage, other, action.replica)
            what = f"{action} with replica {other}"
            sends.append(transport.send(own, peer, tag, "weight", what))
            buffers = [torch.empty_like(tensor) for tensor in own]
            arriving[other, peer] = transport.receive(buffers, peer, back, what)
        return cls((action.replica, rank), action.stage, parameters, norms, own, arriving, transport, sends)

    def finish(self, here: Sequence[Reduction]) -> None:
        """Wait for the others and write the sum into this holder's `.grad`.

        Args:
            here: all reductions of this process, which may hold several replicas of a stage.
        """
        parts = {one.holder: one.own for one in here if one.stage == self.stage}
        for other, message in self.arriving.items():
            parts[other] = self.transport.finish(message)
        ordered = [parts[holder] for holder in sorted(parts)]
        total = torch.stack([part[0] for part in ordered]).sum(0)
        offset = 0
        for parameter in self.parameters:
            size = parameter.numel()
            parameter.grad = total[offset : offset + size].view_as(parameter).clone()
            offset += size
        sizes = [1 + 2 * norm.width for norm in self.norms]
        split = [torch.split(part[1], sizes) for part in ordered] if self.norms else []
        for norm, seen in zip(self.norms, zip(*split, strict=True), strict=True):
            norm.replace_pending(seen)
        for message in self.sends:
            self.transport.finish(message)


def holders(schedule: Schedule, mesh: Mesh, stage: int) -> Iterator[tuple[int, int]]:
    """(replica, process) of all who hold the parameters of a stage."""
    for replica in range(schedule.num_replicas):
        for rank in mesh.ranks_of(schedule.rank_of(stage, replica)):
            yield replica, rank


def _tag(schedule: Schedule, stage: int, sender: int, receiver: int) -> int:
    """Distinct for all reductions between two processes. `sender`, `receiver`: replicas."""
    count = schedule.num_replicas
    return _TAG + ((stage * count + sender) * count + receiver) * 2


def _flat(parameters: list[Parameter]) -> Tensor:
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    return torch.cat([gradient.flatten() for gradient in gradients]) if gradients else torch.zeros(0)
