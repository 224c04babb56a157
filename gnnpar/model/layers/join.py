"""`Join`: where a branch of layers starts from what other branches made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from gnnpar.errors import InputError
from gnnpar.model.layer import Carries, Layer
from gnnpar.model.rows import Rows

__all__ = ["JOINS", "Join"]


def _sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _max(parts: Sequence[Tensor]) -> Tensor:
    largest = parts[0]
    for part in parts[1:]:
        largest = torch.maximum(largest, part)
    return largest


JOINS: Mapping[str, Callable[[Sequence[Tensor]], Tensor]] = MappingProxyType(
    {
        "sum": _sum,
        "mean": lambda parts: _sum(parts) / len(parts),
        "max": _max,
        "cat": lambda parts: torch.cat(list(parts), 1),
    }
)


class Join(Layer):
    """h' = join of carries, row by row, each `[n, H_i]`; h is not looked at. One carry: itself.

    Args:
        reads: the carries, in order; names: what to call them in faults.
        how: `sum`, `mean`, `max` (of equal widths), `cat`, or a row-wise module of as many arguments.
    """

    operator = None
    takes_h = False

    def __init__(self, reads: Sequence[str], how: str | nn.Module | None, names: Sequence[str]) -> None:
        super().__init__()
        self.reads, self.names = tuple(reads), tuple(names)
        self.how = how if isinstance(how, str) else None
        self.module = how if isinstance(how, nn.Module) else None

    def after(self, z: Tensor, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        parts = [carries[name] for name in self.reads]
        if self.module is not None:
            joined: Tensor = self.module(*parts)
            return joined
        if self.how is None:
            return parts[0]
        if self.how != "cat" and len({part.shape[1:] for part in parts}) > 1:
            given = ", ".join(f"{n} {p.shape[1]}" for n, p in zip(self.names, parts, strict=True))
            raise InputError("join", [f"{self.how} needs inputs of one width, but {given} columns; use cat"])
        return JOINS[self.how](parts)

    def extra_repr(self) -> str:
        return f"{', '.join(self.names)}: {self.how or 'module'}"
