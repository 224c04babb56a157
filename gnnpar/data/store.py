"""The on-disk store: one `.npy` file an array and a JSON manifest, memory-mapped by every rank of a host.

A store is a folder. It appears whole (written beside, then renamed) or not at all, is written by one process
at a time (a file lock), and is checked when opened: format version, sizes, and checksums.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnpar.data.home import data_home
from gnnpar.data.lock import file_lock
from gnnpar.errors import InputError

__all__ = ["FORMAT_VERSION", "Store", "StoreWriter", "cached", "is_store", "open_store"]

FORMAT_VERSION = 1
_MANIFEST = "manifest.json"
_ALWAYS_VERIFIED = 256 << 20
_BLOCK = 16 << 20

log = logging.getLogger(__name__)
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Store:
    """An opened store.

    Attributes:
        arrays: by name, mapped copy-on-write: writing to one changes this process's view only.
        meta: what the writer noted.
    """

    folder: Path
    arrays: Mapping[str, Array]
    meta: Mapping[str, Any]


class StoreWriter:
    """Fills a new store. Only `cached` makes one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meta: dict[str, Any] = {}
        self._names: list[str] = []

    def put(self, name: str, array: Array) -> None:
        """Write an array."""
        self._names.append(name)
        np.save(self.folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A mapped array to fill block by block; the pages go to disk, not into memory."""
        if 0 in shape:
            self.put(name, np.zeros(shape, dtype))
            return np.zeros(shape, dtype)
        self._names.append(name)
        return np.lib.format.open_memmap(self.folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)

    def finish(self) -> None:
        files = {}
        for name in self._names:
            path = self.folder / f"{name}.npy"
            files[name] = {"bytes": path.stat().st_size, "crc32": _crc32(path)}
        manifest = {"format": FORMAT_VERSION, "files": files, "meta": self.meta}
        (self.folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def cached(
    key: str,
    build: Callable[[StoreWriter], None],
    *,
    home: Path | None = None,
    timeout_s: float = 3600.0,
) -> Store:
    """The store `key`, built now if missing or damaged. All ranks may call this at once: one builds.

    Args:
        key: folder name; must determine the content.
        home: folder of the stores, default `data_home()/stores`.
        timeout_s: how long to wait for another process that builds the same store.

    Raises:
        InputError: what `build` raises; the folder cannot be written. Nothing half-written stays.
        RunError: another process holds the lock too long.
    """
    home = home or data_home() / "stores"
    folder = home / key
    if folder.exists():
        try:
            return open_store(folder)
        except InputError as damaged:
            log.warning("%s; it is built again from its source", damaged)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with file_lock(home / f"{key}.lock", timeout_s=timeout_s, what=f"converting {key}"):
            try:
                return open_store(folder)
            except InputError:
                _build(folder, build)
    except OSError as error:
        raise InputError(
            f"store {folder}",
            [f"cannot be written: {error}; set GNNPAR_DATA to a folder with space that you own"],
        ) from error
    return open_store(folder)


def is_store(folder: Path) -> bool:
    """Whether a folder claims to be a store."""
    return (folder / _MANIFEST).is_file()


def open_store(folder: Path, *, verify: bool | None = None) -> Store:
    """Open a store and check it.

    Args:
        verify: compare checksums; None does so up to 256 MiB, where it costs a fraction of a second.

    Raises:
        InputError: missing, of another format version, truncated or corrupt; all faults at once.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        version, files, meta = manifest["format"], manifest["files"], manifest["meta"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"store {folder}", [f"no readable manifest ({type(error).__name__})"]) from error
    if version != FORMAT_VERSION:
        raise InputError(f"store {folder}", [f"format {version}, this version reads {FORMAT_VERSION}"])
    if verify is None:
        verify = sum(entry["bytes"] for entry in files.values()) <= _ALWAYS_VERIFIED
    faults = []
    for name, entry in files.items():
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.exists() else 0
        if size != entry["bytes"]:
            faults.append(f"{name}.npy: truncated or replaced, {size} bytes instead of {entry['bytes']}")
        elif verify and _crc32(path) != entry["crc32"]:
            faults.append(f"{name}.npy: corrupt, its checksum differs from the manifest's")
    if faults:
        raise InputError(f"store {folder}", faults)
    return Store(folder, {name: _map(folder / f"{name}.npy") for name in files}, meta)


def _build(folder: Path, build: Callable[[StoreWriter], None]) -> None:
    # Only the lock's holder gets here, so leftovers of the same key belong to a process that died.
    for leftover in folder.parent.glob(f".{folder.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = folder.parent / f".{folder.name}.tmp-{os.getpid()}"
    temporary.mkdir()
    try:
        writer = StoreWriter(temporary)
        build(writer)
        writer.finish()
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _map(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:  # an empty array cannot be mapped
        array = np.load(path, allow_pickle=False)
    return array


def _crc32(path: Path) -> int:
    value = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value
