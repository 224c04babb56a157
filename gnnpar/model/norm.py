"""Normalisations of `[n, H]` rows: those that see one row, and those that see all rows of a slot.

Layer, RMS and group norms treat every row alone, so cutting the vertices into chunks changes nothing. Batch,
graph, pair and instance norms use the rows of the slot they run in; they are marked `chunk_dependent`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gnnpar.errors import InputError
from gnnpar.model.rows import Rows

__all__ = [
    "NORMS",
    "BatchNorm",
    "GraphNorm",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Norm",
    "PairNorm",
    "RMSNorm",
    "make_norm",
]


class Norm(nn.Module):
    """Base: `[n, H]` → `[n, H]`. `chunk_dependent`: a row's result depends on which rows come with it."""

    chunk_dependent: ClassVar[bool] = False

    def __init__(self, width: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        if affine:
            self.weight = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        raise NotImplementedError

    def affine(self, x: Tensor) -> Tensor:
        """x · weight + bias, apart from the norm: the fused gradient of both sums rows thread by thread."""
        return torch.addcmul(self.bias, x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.width}, eps={self.eps}"


class LayerNorm(Norm):
    """(x - mean) / std over the row's H values, then an affine map (Ba et al. 2016)."""

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        return self.affine(nn.functional.layer_norm(x, (self.width,), eps=self.eps))


class RMSNorm(Norm):
    """x / root mean square of the row, then a scale (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps, affine=False)
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        return nn.functional.rms_norm(x, (self.width,), self.weight, self.eps)


class GroupNorm(Norm):
    """`LayerNorm` over each of `num_groups` equal groups of the row's H values (Wu and He 2018)."""

    def __init__(self, width: int, num_groups: int | None = None, eps: float = 1e-5) -> None:
        super().__init__(width, eps)
        self.num_groups = math.gcd(8, width) if num_groups is None else num_groups

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        return self.affine(nn.functional.group_norm(x, self.num_groups, eps=self.eps))


@dataclass(frozen=True, slots=True)
class _Moments:
    """Of some rows: their number, mean `[H]` and sum of squared deviations `[H]`."""

    count: int
    mean: Tensor
    deviation: Tensor

    def merge(self, other: _Moments) -> _Moments:
        """Of both sets of rows together (Chan et al. 1983): exact, whatever the sizes."""
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        cross = delta.square() * (self.count * other.count / count)
        return _Moments(count, mean, self.deviation + other.deviation + cross)


class BatchNorm(Norm):
    """Batch normalisation whose running statistics wait for the end of the step (Ioffe and Szegedy 2015).

    Each pass normalises by its own rows' mean and variance. The moments are kept, and `commit()` merges
    those of all micro-batches of the step by count into the running statistics: one update a step, as full
    batch does. A recomputed pass adds nothing. In evaluation the running statistics are used.
    """

    chunk_dependent: ClassVar[bool] = True
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(width, eps)
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self._pending: list[_Moments] = []

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        return self.normalise(x, training=rows.training, recomputing=rows.recomputing)

    def normalise(self, x: Tensor, *, training: bool, recomputing: bool) -> Tensor:
        if not training or not len(x):
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        variance, mean = torch.var_mean(x, dim=0, correction=0)
        if not recomputing:
            self._pending.append(_Moments(len(x), mean.detach(), variance.detach() * len(x)))
        return (x - mean) * (torch.rsqrt(variance + self.eps) * self.weight) + self.bias

    def pending(self) -> Tensor:
        """The moments of the step so far, `[1 + 2H]` in float64, for another copy of this module."""
        total = self._merged()
        if total is None:
            return self.running_mean.new_zeros(1 + 2 * self.width, dtype=torch.float64)
        count = total.mean.new_tensor([total.count], dtype=torch.float64)
        return torch.cat([count, total.mean.double(), total.deviation.double()])

    def replace_pending(self, parts: Sequence[Tensor]) -> None:
        """Let the step have seen what several copies have, given the `pending()` of each, in this order."""
        kind = self.running_mean.dtype
        seen = [(int(part[0]), part[1:].to(kind).view(2, self.width)) for part in parts]
        self._pending = [_Moments(count, mean, deviation) for count, (mean, deviation) in seen if count]

    def _merged(self) -> _Moments | None:
        total = None
        for moments in self._pending:
            total = moments if total is None else total.merge(moments)
        return total

    @torch.no_grad()
    def commit(self) -> None:
        """Merge the moments of the step into the running statistics. Nothing to do where no pass was made."""
        total = self._merged()
        if total is None:
            return
        self._pending.clear()
        self.running_mean.lerp_(total.mean, self.momentum)
        self.running_var.lerp_(total.deviation / max(total.count - 1, 1), self.momentum)


class GraphNorm(Norm):
    """(x - a·mean) / std over the slot's rows, `a` learnt per column (Cai et al. 2021)."""

    chunk_dependent: ClassVar[bool] = True

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps)
        self.mean_scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        centred = x - self.mean_scale * x.mean(0)
        return centred * (self.weight * torch.rsqrt(centred.square().mean(0) + self.eps)) + self.bias


class PairNorm(Norm):
    """Centre over the slot's rows, then scale all rows to a mean squared length of one (Zhao and Akoglu
    2020)."""

    chunk_dependent: ClassVar[bool] = True

    def __init__(self, width: int, scale: float = 1.0, eps: float = 1e-5) -> None:
        super().__init__(width, eps, affine=False)
        self.scale = scale

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        centred = x - x.mean(0)
        return centred * (self.scale * torch.rsqrt(centred.square().sum(1).mean() + self.eps))


class InstanceNorm(Norm):
    """(x - mean) / std over the slot's rows, nothing learnt and nothing remembered (Ulyanov et al. 2016)."""

    chunk_dependent: ClassVar[bool] = True

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps, affine=False)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        centred = x - x.mean(0)
        return centred * torch.rsqrt(centred.square().mean(0) + self.eps)


NORMS: dict[str, type[Norm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "group": GroupNorm,
    "batch": BatchNorm,
    "graph": GraphNorm,
    "pair": PairNorm,
    "instance": InstanceNorm,
}
"""Names of `model.norm` (beside `none`)."""


def make_norm(kind: str | None, width: int) -> Norm | None:
    """The normalisation named `kind`; None for None and `"none"`.

    Raises:
        InputError: an unknown name.
    """
    if kind is None or kind == "none":
        return None
    if kind not in NORMS:
        known = ", ".join(["none", *NORMS])
        raise InputError("model", [f"norm: unknown normalisation {kind!r}; choose one of {known}"])
    return NORMS[kind](width)
