"""The order that ZB-H1 and ZB-H2 share."""

from __future__ import annotations

from collections.abc import Sequence

from gnnpar.schedule.action import Kind
from gnnpar.schedule.program import code

__all__ = ["split_order"]

# A stage and a micro-batch.
Place = tuple[int, int]


def split_order(forwards: Sequence[Place], backwards: Sequence[Place], warm: int, lag: int) -> list[int]:
    """``warm`` forwards; then in turn I, W if more than ``lag`` of them wait, and F; last the other Ws."""
    order = [code(Kind.F, *place) for place in forwards[:warm]]
    weights = 0
    for number, place in enumerate(backwards):
        order.append(code(Kind.I, *place))
        if number + 1 - weights > lag:
            order.append(code(Kind.W, *backwards[weights]))
            weights += 1
        order += [code(Kind.F, *more) for more in forwards[warm + number : warm + number + 1]]
    return order + [code(Kind.W, *place) for place in backwards[weights:]]
