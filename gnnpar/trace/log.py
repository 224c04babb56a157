"""`EventLog` and `read_log`: events of one rank, in a file that is readable however it ends.

magic, then blocks of (name [4], length [4], content):
NOTE  a JSON object: the first one says whose log it is, the others close an epoch
TEXT  a JSON list of strings, numbered from where the last block stopped
EVNT  records of `EVENT`, which name strings by number
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnpar.errors import InputError

__all__ = ["EVENT", "EventLog", "Log", "read_log"]

EVENT = np.dtype(
    [
        ("start", "<f8"),
        ("end", "<f8"),
        ("bytes", "<i8"),
        ("tag", "<i8"),
        ("batch", "<i4"),
        ("kind", "<u4"),
        ("text", "<u4"),
        ("stage", "<i2"),
        ("layer", "<i2"),
        ("peer", "<i2"),
        ("sent", "<i2"),
    ]
)
"""Of one event: seconds on the clock of its host; bytes and tag of a message, and whether it leaves; the
micro-batch (of an epoch or a step: its number), stage, layer and peer, -1 where there is none."""

_PACK = struct.Struct("<ddqqiIIhhhh")
_BLOCK = struct.Struct("<4sI")
_MAGIC = b"gnnpar events 1\n"
_CAPACITY = 1 << 14


class EventLog:
    """Appends events to a file: packed into room set aside before, written when that is full or on `flush`.

    Cost: about a microsecond and 52 bytes an event.

    Args:
        about: whose log it is: at least `rank`, and `offset`, to be added for the clock of rank 0.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._file = path.open("wb", buffering=0)
        self._file.write(_MAGIC)
        self._room = bytearray(_CAPACITY * EVENT.itemsize)
        self._used = 0
        self._numbers: dict[str, int] = {}
        self._told = 0
        self.note(about)

    def add(
        self,
        kind: str,
        text: str,
        start: float,
        end: float,
        stage: int,
        batch: int,
        layer: int,
        peer: int,
        tag: int,
        size: int,
        sent: bool,
    ) -> None:
        """Append one event; the fields are those of `EVENT`."""
        if self._used == len(self._room):
            self.flush()
        numbers = self._numbers
        of_kind = numbers.setdefault(kind, len(numbers))
        of_text = numbers.setdefault(text, len(numbers))
        place = (start, end, size, tag, batch, of_kind, of_text, stage, layer, peer, sent)
        _PACK.pack_into(self._room, self._used, *place)
        self._used += EVENT.itemsize

    def note(self, facts: Mapping[str, Any]) -> None:
        """Append facts, after all events so far."""
        self.flush()
        self._write(b"NOTE", json.dumps(facts).encode())

    def flush(self) -> None:
        """Write what has been added; others can read it from now on."""
        if self._told < len(self._numbers):
            self._write(b"TEXT", json.dumps(list(self._numbers)[self._told :]).encode())
            self._told = len(self._numbers)
        if self._used:
            self._write(b"EVNT", bytes(memoryview(self._room)[: self._used]))
            self._used = 0

    def close(self) -> None:
        """Flush and close; safe to call twice."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _write(self, name: bytes, content: bytes) -> None:
        self._file.write(_BLOCK.pack(name, len(content)) + content)


@dataclass(frozen=True)
class Log:
    """What a log holds up to where it ends or was cut off.

    Attributes:
        about: whose log it is.
        texts: the strings that `kind` and `text` of the events number.
        events: of `EVENT`, in the order of their ends, on the clock of rank 0.
        notes: one an epoch.
        cut: the file ends inside a block.
    """

    about: dict[str, Any]
    texts: list[str]
    events: np.ndarray
    notes: list[dict[str, Any]]
    cut: bool

    @property
    def rank(self) -> int:
        return int(self.about["rank"])


def read_log(path: Path) -> Log:
    """Read a log, whole or cut off. Raises `InputError` for a file that is none."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise InputError("trace", [f"{path}: not a log of events that this version wrote"])
    at, cut = len(_MAGIC), False
    texts: list[str] = []
    notes: list[dict[str, Any]] = []
    parts = [np.empty(0, EVENT)]
    while at < len(content):
        if at + _BLOCK.size > len(content):
            cut = True
            break
        name, length = _BLOCK.unpack_from(content, at)
        block = content[at + _BLOCK.size : at + _BLOCK.size + length]
        at += _BLOCK.size + length
        cut = len(block) < length
        if name == b"EVNT":
            parts.append(np.frombuffer(block, EVENT, len(block) // EVENT.itemsize))
        elif cut:
            break
        elif name == b"TEXT":
            texts += json.loads(block)
        elif name == b"NOTE":
            notes.append(json.loads(block))
        else:
            raise InputError("trace", [f"{path}: damaged at byte {at - _BLOCK.size - length}"])
    if not notes:
        raise InputError("trace", [f"{path}: cut off before its first event"])
    events = np.concatenate(parts)
    for end in ("start", "end"):
        events[end] += float(notes[0].get("offset", 0.0))
    return Log(notes[0], texts, events, notes[1:], cut)
