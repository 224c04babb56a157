"""How a worker tells the parent why it failed, and which of several failures came first."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gnnpar.errors import GnnparError, InputError, RunError

__all__ = ["Failure", "describe_failures", "write_failure"]


@dataclass(frozen=True)
class Failure:
    """Why a rank ended.

    Attributes:
        when: wall clock time of the exception; 0 where the process died without raising one, since nothing
            that happens to a peer makes a process die so: it came first.
        lost_peer: the exception says that a connection broke: then another rank failed before, though its own
            exception may have been caught, and so been dated, later.
        text: one line, or a message, for the user.
        trace: the traceback; empty for errors that explain themselves.
        title, faults: of an `InputError`; an empty title otherwise.
    """

    rank: int
    when: float
    text: str
    lost_peer: bool = False
    trace: str = ""
    title: str = ""
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, rank: int, code: int, error_file: Path) -> Failure | None:
        """From what a worker left behind; None where it ended well."""
        try:
            fields = json.loads(error_file.read_text(encoding="utf-8"))
            return cls(**{**fields, "faults": tuple(fields["faults"])})
        except (OSError, ValueError, TypeError, KeyError):
            pass  # no file, or one that a signal cut short
        if code == 0:
            return None
        if code < 0:
            return cls(
                rank, 0.0, f"rank {rank} was killed by {_signal_name(-code)}{_SIGNAL_HINTS.get(-code, '')}"
            )
        return cls(rank, 0.0, f"rank {rank} ended with exit code {code} and no error message")

    @classmethod
    def of_exception(cls, rank: int, error: BaseException) -> Failure:
        """From an exception, now."""
        now, text = time.time(), str(error)
        if isinstance(error, InputError):
            return cls(rank, now, text, title=error.title, faults=error.faults)
        trace = "".join(traceback.format_exception(error))
        lost_peer = _BROKEN_CONNECTION.search(trace) is not None
        if isinstance(error, GnnparError):
            return cls(rank, now, text if f"rank {rank}" in text else f"rank {rank}: {text}", lost_peer)
        return cls(rank, now, f"rank {rank}: {type(error).__name__}: {text}", lost_peer, trace)


def write_failure(failure: Failure, file: Path) -> None:
    """Leave a failure for the parent, atomically."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(asdict(failure)), encoding="utf-8")
    os.replace(part, file)


def describe_failures(failures: Sequence[Failure], logs: Path) -> GnnparError:
    """The error to raise for a group of failed ranks: what came first, with its traceback; the rest in short.

    A rank whose peer has died fails too, a little later; only the earliest is worth a traceback.
    """
    if not failures:
        return RunError(f"a rank failed and left no trace; see {logs}")
    first, *others = sorted(failures, key=lambda failure: (failure.lost_peer, failure.when))
    if first.title:
        return InputError(first.title, first.faults)
    lines = [first.trace.rstrip(), ""] if first.trace else []
    lines.append(first.text)
    dead = [failure for failure in others if failure.when == 0.0]
    lines += [failure.text for failure in dead]
    late = [str(failure.rank) for failure in others if failure.when > 0.0]
    if late:
        lines.append(f"rank{'s' if len(late) > 1 else ''} {', '.join(late)} failed after that")
    lines.append(f"logs of all ranks: {logs}")
    return RunError("\n".join(lines))


# What gloo, nccl and the store say when the process at the other end is gone.
_BROKEN_CONNECTION = re.compile(
    r"closed by peer|reset by peer|connection reset|broken pipe|remote process exited", re.IGNORECASE
)
_SIGNAL_HINTS: dict[int, str] = {
    signal.SIGKILL: ": by hand, or by the kernel when memory ran out (then use more stages or chunks, or "
    "memory.recompute=true)",
    signal.SIGSEGV: ": a crash in native code; its log may hold the stack",
    signal.SIGABRT: ": a crash in native code; its log may hold the reason",
}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
