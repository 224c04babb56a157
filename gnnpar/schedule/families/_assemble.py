"""What families share: the closing REDUCE and STEP, and refusals of counts they are not defined for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnnpar.errors import Faults, InputError
from gnnpar.schedule.action import Item, Kind
from gnnpar.schedule.program import Program, code
from gnnpar.schedule.reductions import insert_reductions
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
            items = insert_reductions(items, mine)
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
