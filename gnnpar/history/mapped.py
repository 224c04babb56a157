"""`MappedRows`: the rows of a history in a memory-mapped file, so that memory holds only those in use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnpar.errors import InputError, RunError
from gnnpar.graph import Graph

__all__ = ["MappedRows", "foreign_histories"]


@dataclass(frozen=True)
class _Header:
    """What a file holds: rows of a graph in its order, at one layer."""

    graph: str
    layer: int
    rows: int
    width: int
    dtype: str


class MappedRows:
    """A file `[rows, K]` and a header beside it, which says of which graph and layer it is.

    The operating system writes rows behind our back and reads them when they are touched. `release` lets go
    of those in memory; they stay in its cache as long as there is room. A file is reopened as it is, and
    locked while it is open.

    Args:
        path: of the file; the header's name ends in `.json`.
        graph: renumbered.
        layer: global index.
    """

    def __init__(self, path: Path, graph: Graph, layer: int) -> None:
        self.path = path
        self.graph = graph
        self.layer = layer
        self._map: mmap.mmap | None = None
        self._lock = -1

    def open(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """`[rows, width]`, zero in a new file.

        Raises:
            InputError: the file is of another graph, layer or shape, or another process has it open.
            RunError: there is no room for it.
        """
        header = _Header(self.graph.fingerprint, self.layer, rows, width, str(dtype).removeprefix("torch."))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is on the header: a mapping would hold a file's lock until its last tensor is gone.
        lock = os.open(self.path.with_suffix(".json"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._open(lock, header)
        except (InputError, RunError):
            os.close(lock)
            raise
        self._lock = lock
        # Who drops the histories without a word gives them back, too.
        weakref.finalize(self, _close, lock)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype).view(rows, width)

    def _open(self, lock: int, header: _Header) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"history.dir: {self.path} is in use by a run that has not ended; choose another folder"
            raise InputError("histories", [text]) from None
        written = os.read(lock, 1 << 16)
        differs = _differences(_parsed(written), asdict(header)) if written else ""
        if differs:
            raise _refused(f"{self.path} holds other histories ({differs})")
        size = header.rows * header.width * getattr(torch, header.dtype).itemsize
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(file, 0, size)
                self._map = mmap.mmap(file, size)
            finally:
                os.close(file)
        except OSError as error:
            need = f"{size / 2**20:.0f} MiB for {self.path}"
            raise RunError(f"history.dir: cannot have {need}: {error.strerror}") from error
        if not written:
            os.write(lock, json.dumps(asdict(header)).encode() + b"\n")

    def release(self) -> None:
        """Give back the memory of the rows; they are read again where they are touched."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let others open the file; its rows may still be read here."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock = -1


def foreign_histories(folder: Path, graph: Graph) -> list[str]:
    """Faults: files in the folder that are of another graph, or of another order of its vertices."""
    headers = sorted(folder.glob("rank*.json"))
    # A header that was never written is of a run that got no room for its rows: they hold nothing.
    texts = [(path, path.read_bytes()) for path in headers]
    found = [(path, _parsed(text).get("graph")) for path, text in texts if text]
    return [
        f"history.dir: {path} is of graph {of}, not of {graph.name} in this order ({graph.fingerprint}); "
        "choose another folder, or remove its files"
        for path, of in found
        if of != graph.fingerprint
    ][:1]


def _parsed(header: bytes) -> dict[str, Any]:
    """What a header says; nothing where it cannot be read."""
    try:
        found = json.loads(header)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _close(lock: int) -> None:
    with contextlib.suppress(OSError):
        os.close(lock)


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    pairs = ((key, found.get(key), value) for key, value in wanted.items())
    return ", ".join(f"{key} {old}, not {new}" for key, old, new in pairs if old != new)


def _refused(what: str) -> InputError:
    return InputError("histories", [f"history.dir: {what}; choose another folder, or remove its files"])
