"""Where data lives on this machine, and whether a conversion fits into its memory."""

from __future__ import annotations

import os
from pathlib import Path

from gnnpar.errors import InputError

__all__ = ["data_home", "raw_folder", "require_memory"]


def data_home() -> Path:
    """`$GNNPAR_DATA`, else `gnnpar` in the user's cache folder. Holds `raw/` (sources) and `stores/`."""
    given = os.environ.get("GNNPAR_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gnnpar"


def raw_folder(name: str) -> Path:
    """Where `gnnpar data fetch` puts the source of a dataset."""
    return data_home() / "raw" / name


def require_memory(num_bytes: int, what: str) -> None:
    """Refuse work that would be killed half-way: `num_bytes` must be available now.

    Raises:
        InputError: naming the need and what there is.
    """
    available = _available_memory()
    if available is not None and num_bytes > available:
        raise InputError(
            what,
            [
                f"needs about {num_bytes / 2**30:.1f} GiB of memory, {available / 2**30:.1f} GiB are free; "
                "free memory, or convert on a larger machine (gnnpar data convert), copy the store, and give "
                "its folder as dataset.path"
            ],
        )


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return min(free, max(0, limit - used))
    except (OSError, ValueError):
        return free
