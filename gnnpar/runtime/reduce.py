"""`Reduction`: sums the gradients of one stage over all who hold it, while other actions go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.dist import Mesh, Message, Transport
from gnnpar.model.norm import BatchNorm
from gnnpar.runtime.interface import AnyStage
from gnnpar.schedule import Action, Schedule

__all__ = ["Reduction", "holders"]

_TAG = 1 << 28
"""Gradients are tagged apart from payloads."""
_PRESENT = 2
"""Which parameters have a gradient is tagged after the gradients and what batch norms saw."""


@dataclass(frozen=True)
class Reduction:
    """A REDUCE under way on one process.

    A stage is held by the ways of each of its replicas. All add up in the order of (replica, way), so that
    they hold the same bits afterwards. Every holder sends its gradients to every other one: h · (h - 1) times
    their size for h holders. What batch norms saw of the step travels along, and is merged in the same order.
    So does, as bytes of kind `control`, which parameters have a gradient: where no holder has one there is
    none after, and the optimizer leaves the parameter alone, as it does where nothing is reduced.

    Attributes:
        holder: (replica, process).
        parameters: that are trained.
        own: this holder's gradients, flat, as they were when the reduction began; then what its norms saw.
        own_present: `[len(parameters)]` bool: which of them it has.
        arriving, arriving_present: the same of the holders in other processes.
    """

    holder: tuple[int, int]
    stage: int
    parameters: list[Parameter]
    norms: list[BatchNorm]
    own: list[Tensor]
    own_present: Tensor
    arriving: dict[tuple[int, int], Message]
    arriving_present: dict[tuple[int, int], Message]
    transport: Transport
    sends: list[Message]

    @classmethod
    def start(
        cls,
        action: Action,
        schedule: Schedule,
        mesh: Mesh,
        stages: Mapping[tuple[int, int], AnyStage],
        transport: Transport,
    ) -> Reduction:
        """Send this holder's gradients of `action.stage` to the others, and post receives for theirs."""
        stage = stages[action.replica, action.stage]
        parameters, norms = [p for p in stage.parameters() if p.requires_grad], stage.batch_norms()
        own = [_flat(parameters)]
        if norms:
            own.append(torch.cat([norm.pending() for norm in norms]))
        present = torch.tensor([p.grad is not None for p in parameters], device=own[0].device)
        arriving: dict[tuple[int, int], Message] = {}
        arriving_present: dict[tuple[int, int], Message] = {}
        sends: list[Message] = []
        rank = transport.context.rank
        for other, peer in holders(schedule, mesh, action.stage):
            if peer == rank:
                continue
            tags = _tags(schedule, action.stage, action.replica, other)
            what = f"{action} with replica {other} on rank {peer}"
            sent, arriving[other, peer] = transport.swap(
                own, [torch.empty_like(tensor) for tensor in own], peer, tags, "weight", what
            )
            last = tags[0] + _PRESENT, tags[1] + _PRESENT
            told, arriving_present[other, peer] = transport.swap(
                [present], [torch.empty_like(present)], peer, last, "control", what
            )
            sends += [sent, told]
        holder = action.replica, rank
        return cls(
            holder,
            action.stage,
            parameters,
            norms,
            own,
            present,
            arriving,
            arriving_present,
            transport,
            sends,
        )

    def finish(self, here: Sequence[Reduction]) -> None:
        """Wait for the others and write the sum into this holder's `.grad`.

        Args:
            here: all reductions of this process, which may hold several replicas of a stage.
        """
        parts = {one.holder: one.own for one in here if one.stage == self.stage}
        present = [one.own_present for one in here if one.stage == self.stage]
        for other, message in self.arriving.items():
            parts[other] = self.transport.finish(message)
            present += self.transport.finish(self.arriving_present[other])
        ordered = [parts[holder] for holder in sorted(parts)]
        total = torch.stack([part[0] for part in ordered]).sum(0)
        sizes = [parameter.numel() for parameter in self.parameters]
        anywhere = torch.stack(present).any(0).tolist()
        sums = torch.split(total, sizes) if sizes else ()
        for parameter, known, gradient in zip(self.parameters, anywhere, sums, strict=True):
            parameter.grad = gradient.view_as(parameter).clone() if known else None
        sizes = [1 + 2 * norm.width for norm in self.norms]
        split = [torch.split(part[1], sizes) for part in ordered] if self.norms else []
        for norm, seen in zip(self.norms, zip(*split, strict=True), strict=True):
            norm.replace_pending(seen)
        for message in self.sends:
            self.transport.finish(message)


def holders(schedule: Schedule, mesh: Mesh, stage: int) -> Iterator[tuple[int, int]]:
    """(replica, process) of all who hold the parameters of a stage."""
    for replica in range(schedule.num_replicas):
        for rank in mesh.processes_of(schedule.rank_of(stage, replica)):
            yield replica, rank


def _tags(schedule: Schedule, stage: int, mine: int, theirs: int) -> tuple[int, int]:
    """The first tag there and the first tag back, of as many as a reduction between two replicas needs."""
    count = schedule.num_replicas
    there, back = ((stage * count + a) * count + b for a, b in ((mine, theirs), (theirs, mine)))
    return _TAG + there * (_PRESENT + 1), _TAG + back * (_PRESENT + 1)


def _flat(parameters: list[Parameter]) -> Tensor:
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    return torch.cat([gradient.flatten() for gradient in gradients]) if gradients else torch.zeros(0)
