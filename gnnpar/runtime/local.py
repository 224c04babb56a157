"""`LocalHead`: the loss of its own that a stage has under local learning."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn import functional as F

from gnnpar.batch import Chunk
from gnnpar.history import Reads
from gnnpar.runtime.targets import Targets

__all__ = ["LocalHead"]


class LocalHead:
    """A small classifier on what a stage hands on; its gradient takes the place of that of later stages.

    Paper: Guo et al., *PPLL* (2024, §3), on images. Heads for vertices are ours: one linear map, or two with
    a ReLU between them; none looks at neighbours.

    Args:
        width, num_classes: of the rows, and of the logits.
        hidden: a second map, after a ReLU.
        targets: labels.
        seed: of the parameters; the same on every way that holds the stage.
    """

    def __init__(
        self,
        width: int,
        num_classes: int,
        hidden: bool,
        targets: Targets,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        make = torch.Generator().manual_seed(seed)
        sizes = [(width, width), (num_classes, width)] if hidden else [(num_classes, width)]
        drawn = [
            (_uniform((rows, columns), columns, make), _uniform((rows,), columns, make))
            for rows, columns in sizes
        ]
        self.maps = [tuple(nn.Parameter(value.to(device, dtype)) for value in pair) for pair in drawn]
        self.targets = targets
        self._losses: dict[Chunk, Tensor] = {}

    def named_parameters(self) -> Iterable[tuple[str, Parameter]]:
        """`0.weight`, `0.bias`, …"""
        for number, (weight, bias) in enumerate(self.maps):
            yield f"{number}.weight", weight
            yield f"{number}.bias", bias

    def forward(self, chunk: Chunk, h: Tensor, reads: Reads) -> None:
        """Note the loss of a chunk, given its rows `[n, width]`, a leaf."""
        rows = h[self.targets.rows(chunk)]
        for number, (weight, bias) in enumerate(self.maps):
            rows = F.linear(rows if number == 0 else F.relu(rows), weight, bias)
        self._losses[chunk] = self.targets.loss(rows, chunk, reads.divisor(chunk))

    def backward(self, chunk: Chunk) -> None:
        """Leave the gradient of its loss with the leaf and with the parameters."""
        torch.autograd.backward(self._losses.pop(chunk))


def _uniform(shape: tuple[int, ...], fan_in: int, make: torch.Generator) -> Tensor:
    bound = fan_in**-0.5
    return torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=make)
