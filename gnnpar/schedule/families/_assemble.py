"""What families share: the closing REDUCE and STEP, and refusals of counts they are not defined for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnnpar.errors import Faults, InputError
from gnnpar.schedule.action import Action, Item, Kind
from gnnpar.schedule.program import Program, code, decode
from gnnpar.schedule.schedule import Schedule

__all__ = ["assemble", "require"]


def require(name: str, *conditions: tuple[bool, str]) -> None:
    """Raises InputError with every condition that does not hold."""
    faults = Faults(f"schedule {name}")
    faults.extend(text for holds, text in conditions if not holds)
    faults.raise_if_any()


def assemble(
    name: str,
    num_stages: int,
    num_micro_batches: int,
    orders: Sequence[Iterable[Item | int]],
    *,
    placement: Sequence[Sequence[int]] = (),
    edges: Sequence[tuple[int, int]] | None = None,
) -> Schedule:
    """A schedule from the order of F, B, I and W of each rank.

    With several replicas, REDUCE follows the last backward of each stage at once, so that it runs beside the
    computation that is left. The STEPs of a rank close its program.
    """
    held: list[list[tuple[int, int]]] = [[] for _ in orders]
    for replica, row in enumerate(placement or [range(num_stages)]):
        for stage, rank in enumerate(row):
            if not 0 <= rank < len(orders):
                raise InputError(f"schedule {name}", [f"placement: stage {stage} is on rank {rank}"])
            held[rank].append((replica, stage))
    ranks = []
    for order, mine in zip(orders, held, strict=True):
        items = list(order)
        if len(placement) > 1:
            items = _with_reductions(items, mine)
        items += [code(Kind.STEP, stage, 0, replica) for replica, stage in mine]
        ranks.append(Program(items))
    return Schedule(
        name,
        num_stages,
        num_micro_batches,
        tuple(ranks),
        placement=tuple(map(tuple, placement)),
        edges=None if edges is None else tuple(edges),
    )


def _with_reductions(items: Sequence[Item | int], held: Sequence[tuple[int, int]]) -> list[Item | int]:
    waiting = set(held)
    backwards: list[Item | int] = []
    for item in reversed(items):
        for part in decode([item]).parts if isinstance(item, int) else item.parts:
            if part.kind in (Kind.B, Kind.W) and (part.replica, part.stage) in waiting:
                waiting.remove((part.replica, part.stage))
                backwards.append(Action(Kind.REDUCE, part.stage, (), part.replica))
        backwards.append(item)
    early = [Action(Kind.REDUCE, stage, (), replica) for replica, stage in sorted(waiting)]
    return [*early, *reversed(backwards)]
