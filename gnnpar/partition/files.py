"""Partitions on disk: one checksummed npz file each, written atomically; and a cache of them by request."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import torch

from gnnpar.errors import InputError
from gnnpar.graph.graph import Graph
from gnnpar.partition.partition import Partition, PartitionKey

__all__ = ["load_cached", "load_partition", "save_cached", "save_partition"]


def save_partition(partition: Partition, path: Path) -> None:
    """Write `path` (any suffix) in one go: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            key = {name: getattr(partition.key, name) for name in partition.key.__dataclass_fields__}
            np.savez(
                file,
                key=np.array(json.dumps(key)),
                order=partition.order.numpy(),
                offsets=partition.offsets.numpy(),
                checksum=np.array(_checksum(partition)),
            )
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_partition(path: Path, graph: Graph) -> Partition:
    """Read a partition of `graph`.

    Raises:
        InputError: no such file, not a partition, damaged, or of another graph (both fingerprints named).
    """
    partition = _read(path)
    partition.check(graph)
    return partition


def load_cached(folder: Path, key: PartitionKey) -> Partition | None:
    """The earlier result of the same request, or None. A damaged file counts as none: it will be replaced."""
    path = _cache_path(folder, key)
    if not path.exists():
        return None
    try:
        partition = _read(path)
    except InputError:
        return None
    return partition if partition.key == key else None


def save_cached(folder: Path, partition: Partition) -> None:
    save_partition(partition, _cache_path(folder, partition.key))


def _cache_path(folder: Path, key: PartitionKey) -> Path:
    return folder / f"partition-{key.fingerprint}.npz"


def _read(path: Path) -> Partition:
    title = f"partition file {path}"
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            key = PartitionKey(**json.loads(str(file["key"])))
            partition = Partition(key, torch.from_numpy(file["order"]), torch.from_numpy(file["offsets"]))
            checksum = str(file["checksum"])
    except FileNotFoundError:
        raise InputError(title, ["no such file; make one with: gnnpar partition … out=FILE"]) from None
    except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(title, [f"not a partition, or damaged ({error}); make it again"]) from error
    if checksum != _checksum(partition):
        raise InputError(title, ["damaged: the checksum does not match; make it again"])
    return partition


def _checksum(partition: Partition) -> str:
    """Covers all that is stored: the partition's fingerprint hashes request and arrays."""
    return hashlib.blake2b(partition.fingerprint.encode(), digest_size=8).hexdigest()
