"""The text form of ``torch.distributed.pipelining``, as a cross-check for the families that both have."""

from __future__ import annotations

from gnnpar.errors import InputError
from gnnpar.schedule.action import COMPUTE, Compound
from gnnpar.schedule.schedule import Schedule

__all__ = ["to_torch_csv"]


def to_torch_csv(schedule: Schedule) -> str:
    """One line a rank of comma-separated actions that torch's ``_load_csv`` reads (compute only).

    F, I, W and B are the same letters there; a compound is written ``(2F3;2B1)OVERLAP_F_B``; STEP has no
    counterpart and is left out, and a concatenated W becomes one W a micro-batch.

    Raises:
        InputError: the schedule has replicas, a graph of stages, or communication: torch's form has none.
    """
    if schedule.num_replicas > 1 or not schedule.is_chain or schedule.lowered:
        reason = "torch's text has one replica and a chain of stages, and no messages: it places them itself"
        raise InputError(f"schedule {schedule.name}", [reason])
    lines = []
    for rank in schedule.ranks:
        cells: list[str] = []
        for item in rank:
            parts = [part for part in item.parts if part.kind in COMPUTE]
            if isinstance(item, Compound):
                cells.append(f"({';'.join(map(str, parts))})OVERLAP_F_B")
                continue
            cells += [
                f"{part.stage}{part.kind.name}{batch}" for part in parts for batch in part.micro_batches
            ]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"
