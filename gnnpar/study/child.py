"""A job's process: started so that it dies with the sweep, ended so that nothing of it is left.

`python -m gnnpar.study.child PARENT COMMAND…` becomes COMMAND, once the kernel knows to send it SIGTERM when
the sweep dies. (A function run between fork and exec could ask for that as well, but is not safe beside the
thread that draws the live table.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["end", "main", "start", "tree_memory"]

PR_SET_PDEATHSIG = 1
TERM_S = 15.0
"""What a job has from SIGTERM to SIGKILL: it ends its own processes in that time."""

Process = subprocess.Popen[bytes]


def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a job in a process group of its own, all it prints in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "gnnpar.study.child", str(os.getpid()), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which then ends everyone in order
        )


def end(processes: Iterable[Process]) -> None:
    """TERM, then KILL, to the groups of these processes; returns when all have ended."""
    left = list(processes)
    for process in left:
        _kill(process, signal.SIGTERM)
    deadline = time.monotonic() + TERM_S
    for process in left:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        _kill(process, signal.SIGKILL)  # also what it has left in its group
        process.wait()


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Bytes that each process and all below it hold, pages that several share counted in parts (Linux)."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (folder / "stat").read_text()  # "pid (name) state parent …", any character in name
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = {}
    for root in roots:
        found[root], queue = 0, [root]
        while queue:
            pid = queue.pop()
            found[root] += _memory(pid)
            queue += children.get(pid, [])
    return found


def main(arguments: Sequence[str]) -> None:
    """Become the command that follows the parent's process id."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("the sweep is gone")
    os.execvp(command[0], command)


def _kill(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0  # it has ended


if __name__ == "__main__":
    main(sys.argv[1:])
