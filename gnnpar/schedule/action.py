"""Action: one thing that one rank does, and its short text form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from gnnpar.errors import InputError

__all__ = ["COMMUNICATION", "COMPUTE", "Action", "Compound", "Item", "Kind", "parse_item"]


class Kind(IntEnum):
    """What an action does. ``B`` is the whole backward; ``I`` and ``W`` are its two halves."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the name of the input-gradient half in the literature and in the text form
    W = 3
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    REDUCE = 8
    STEP = 9


COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
COMMUNICATION = frozenset({Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B})

_SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
_PATTERN = re.compile(
    r"(?P<stage>\d+)(?P<kind>SEND_F|RECV_F|SEND_B|RECV_B|REDUCE|STEP|[FBIW])"
    r"(?P<batches>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)?(?:[<>](?P<peer>\d+))?(?:@(?P<replica>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Action:
    """One action of one stage: ``2F0``, ``2F0@1``, ``2W0-7``, ``2SEND_F0>3``, ``2REDUCE@1``, ``2STEP``.

    Args:
        kind: what is done.
        stage: the stage it is done for.
        micro_batches: the micro-batches it covers, ascending; empty for REDUCE and STEP. Several at once
            are one product over their concatenation (2BP's ``W0-7``, Chimera's doubled forward).
        replica: which copy of the stages (bidirectional schedules hold two).
        peer: of SEND and RECV, the *stage* at the other end; its rank is ``schedule.rank_of(peer, replica)``.
    """

    kind: Kind
    stage: int
    micro_batches: tuple[int, ...] = ()
    replica: int = 0
    peer: int | None = None

    @property
    def parts(self) -> tuple[Action, ...]:
        """The action itself, so that plain and compound items are walked alike."""
        return (self,)

    @property
    def micro_batch(self) -> int:
        """The only micro-batch of this action."""
        (only,) = self.micro_batches
        return only

    def __str__(self) -> str:
        text = f"{self.stage}{self.kind.name}{_ranges(self.micro_batches)}"
        if self.peer is not None:
            text += f"{'>' if self.kind in _SENDS else '<'}{self.peer}"
        return text + (f"@{self.replica}" if self.replica else "")

    @classmethod
    def parse(cls, text: str) -> Action:
        """Reads what ``str`` wrote. Raises InputError on anything else."""
        found = _PATTERN.fullmatch(text)
        if found is None:
            raise InputError("schedule", [f"'{text}' is not an action, like 2F0, 2W0-7 or 2REDUCE@1"])
        peer, replica = found["peer"], found["replica"]
        action = cls(
            Kind[found["kind"]],
            int(found["stage"]),
            _unranges(found["batches"] or ""),
            int(replica) if replica else 0,
            int(peer) if peer else None,
        )
        if str(action) != text:
            raise InputError("schedule", [f"'{text}' is not in canonical form; write {action}"])
        return action


@dataclass(frozen=True, slots=True)
class Compound:
    """Actions that one rank may overlap, ``(2F3;2B1)``; an executor may also run them one after the other."""

    parts: tuple[Action, ...]

    def __str__(self) -> str:
        return f"({';'.join(map(str, self.parts))})"


Item = Action | Compound


def parse_item(text: str) -> Item:
    """Reads an action or a compound of actions. Raises InputError on anything else."""
    if text.startswith("(") and text.endswith(")"):
        return Compound(tuple(Action.parse(part) for part in text[1:-1].split(";")))
    return Action.parse(text)


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def _unranges(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for run in text.split(",") if text else ():
        low, _, high = run.partition("-")
        numbers.extend(range(int(low), int(high or low) + 1))
    return tuple(numbers)
