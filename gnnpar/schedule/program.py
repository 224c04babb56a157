"""Program: the items of one rank, packed as integers so that a million-action schedule stays small and fast.

Each action is one 64-bit code per micro-batch; to users a Program is a sequence of Action and Compound.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from gnnpar.errors import InputError
from gnnpar.schedule.action import Action, Compound, Item, Kind

__all__ = ["Program", "code", "decode"]

# Bits of a code, from the lowest: micro-batch, stage, peer + 1, replica, kind, MORE, JOIN.
BATCH_BITS, STAGE_BITS, REPLICA_BITS = 20, 15, 5
STAGE_AT = BATCH_BITS
PEER_AT = STAGE_AT + STAGE_BITS
REPLICA_AT = PEER_AT + STAGE_BITS
KIND_AT = REPLICA_AT + REPLICA_BITS
BATCH_MASK = (1 << BATCH_BITS) - 1
STAGE_MASK = (1 << STAGE_BITS) - 1
REPLICA_MASK = (1 << REPLICA_BITS) - 1
KIND_MASK = 15
MORE = 1 << (KIND_AT + 4)  # the next code is another micro-batch of the same action
JOIN = 1 << (KIND_AT + 5)  # this action overlaps the one before it: both are parts of one compound


def code(kind: Kind, stage: int, micro_batch: int = 0, replica: int = 0, peer: int | None = None) -> int:
    """The code of an action of one micro-batch; ``code(k, s, m) == code(k, s, 0) + m``."""
    return (
        kind << KIND_AT
        | replica << REPLICA_AT
        | (0 if peer is None else peer + 1) << PEER_AT
        | stage << STAGE_AT
        | micro_batch
    )


def decode(codes: Sequence[int]) -> Item:
    """The item that these codes, all of one item, spell."""
    parts: list[Action] = []
    batches: list[int] = []
    for value in codes:
        batches.append(value & BATCH_MASK)
        if value & MORE:
            continue
        kind = Kind(value >> KIND_AT & KIND_MASK)
        peer = (value >> PEER_AT & STAGE_MASK) - 1
        parts.append(
            Action(
                kind,
                value >> STAGE_AT & STAGE_MASK,
                () if kind in (Kind.REDUCE, Kind.STEP) else tuple(batches),
                value >> REPLICA_AT & REPLICA_MASK,
                None if peer < 0 else peer,
            )
        )
        batches = []
    return parts[0] if len(parts) == 1 else Compound(tuple(parts))


def _encode(item: Item) -> Iterator[int]:
    for place, part in enumerate(item.parts):
        whole = part.kind in (Kind.REDUCE, Kind.STEP)
        if whole == bool(part.micro_batches):
            raise InputError("schedule", [f"{part}: {'takes no' if whole else 'needs a'} micro-batch"])
        batches = part.micro_batches or (0,)
        if list(batches) != sorted(set(batches)):
            raise InputError("schedule", [f"{part}: its micro-batches must ascend"])
        limits = ((part.stage, STAGE_MASK), (batches[-1], BATCH_MASK), (part.replica, REPLICA_MASK))
        if any(not 0 <= value <= most for value, most in (*limits, (batches[0], BATCH_MASK))):
            limit = f"at most {STAGE_MASK} stages, {BATCH_MASK} micro-batches, {REPLICA_MASK} replicas"
            raise InputError("schedule", [f"{part}: {limit}"])
        base = code(part.kind, part.stage, 0, part.replica, part.peer) | (JOIN if place else 0)
        for batch in batches[:-1]:
            yield base | MORE | batch
        yield base | batches[-1]


def _form(base: int) -> tuple[str, str | None]:
    """What stands before and after the micro-batch in the text of a code; (all, None) where it names none."""
    (part,) = decode([base << BATCH_BITS]).parts
    if not part.micro_batches:
        return str(part), None
    head, kind, tail = str(part).partition(f"{part.kind.name}0")
    return head + kind[:-1], tail


class Program(Sequence[Item]):
    """What one rank does, in order: a sequence of items that decodes them as they are read.

    Args:
        items: actions and compounds, or integer codes of plain actions (the fast way, see ``code``).
    """

    __slots__ = ("_starts", "codes")

    def __init__(self, items: Iterable[Item | int]) -> None:
        codes = array("q")
        if isinstance(items, array):
            codes = items
        else:
            for item in items:
                if isinstance(item, int):
                    codes.append(item)
                else:
                    codes.extend(_encode(item))
        self.codes = codes
        self._starts: Sequence[int] | None = None

    @property
    def starts(self) -> Sequence[int]:
        """Index of the first code of each item."""
        if self._starts is None:
            # The two flags are the highest bits, so the largest code tells whether there is any.
            if max(self.codes, default=0) < MORE:
                self._starts = range(len(self.codes))
            else:
                pairs = enumerate(zip(array("q", [0]) + self.codes, self.codes, strict=False))
                starts = (at for at, (before, value) in pairs if not (before & MORE or value & JOIN))
                self._starts = array("q", starts)
        return self._starts

    def texts(self) -> list[str]:
        """The text of every item, as ``str`` writes it, at a fraction of the cost of decoding each."""
        if not isinstance(self.starts, range):
            return [str(item) for item in self]
        forms = {base: _form(base) for base in {value >> BATCH_BITS for value in self.codes}}
        return [
            f"{head}{value & BATCH_MASK}{tail}" if tail is not None else head
            for value in self.codes
            for head, tail in (forms[value >> BATCH_BITS],)
        ]

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        starts = self.starts
        index = range(len(starts))[index]
        stop = starts[index + 1] if index + 1 < len(starts) else len(self.codes)
        return decode(self.codes[starts[index] : stop])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Program):
            return self.codes == other.codes
        return isinstance(other, (tuple, list)) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self.codes.tobytes())

    def __repr__(self) -> str:
        shown = " ".join(map(str, self[:12]))
        return f"Program({shown}{' …' if len(self) > 12 else ''})"
