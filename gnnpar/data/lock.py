"""A lock between processes of a host, with a deadline, that knows who holds it."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnpar.errors import RunError

__all__ = ["file_lock", "lock_holder"]


@contextmanager
def file_lock(path: Path, *, timeout_s: float, what: str) -> Iterator[None]:
    """Hold `path` exclusively. The operating system releases it when the holder ends, however it ends.

    Args:
        what: what is being done, for the message.

    Raises:
        RunError: not obtained within `timeout_s`; names the holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with open(path, "a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RunError(
                        f"{what}: waited {timeout_s:g} s for {path}, held by {_holder(path)}. "
                        "Wait for that process, or end it if it hangs: its lock goes with it."
                    ) from None
                time.sleep(0.05)
        file.seek(0)
        file.truncate()
        file.write(
            f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        )
        file.flush()
        yield


def lock_holder(path: Path) -> str | None:
    """Who holds the lock `path`, as "process 7 on host since …"; None where nobody does."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _holder(path)
    return None


def _holder(path: Path) -> str:
    try:
        return path.read_text() or "an unknown process"
    except OSError:
        return "an unknown process"
