"""One clock for the events of all ranks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gnnpar.dist.context import Context
from gnnpar.dist.transport import Transport

__all__ = ["clock_offset"]

_TAG = 7 << 26
"""Apart from all other tags."""
_ROUNDS = 20


def clock_offset(
    context: Context, transport: Transport, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds to add to this process's clock for that of rank 0. Every rank must call it.

    On one host it is 0: `time.perf_counter` is the host's own clock since it started (CLOCK_MONOTONIC), the same
    in all processes. Ranks of other hosts ask rank 0 for its time, some times over; the answer that came back
    fastest counts, as of the middle between question and answer (Cristian 1989). So the error is at most
    half of the fastest round trip.
    """
    hosts = context.gather_objects(_host() if clock is time.perf_counter else context.rank, "comparing hosts")
    far = [rank for rank, host in enumerate(hosts) if host != hosts[0]]
    if context.is_first:
        for rank in far:
            _answer(transport, rank, clock)
    return _ask(transport, clock) if context.rank in far else 0.0


def _answer(transport: Transport, rank: int, clock: Callable[[], float]) -> None:
    time_of = torch.zeros(1, dtype=torch.float64, device=transport.context.device)
    for number in range(_ROUNDS):
        tag = _TAG + 2 * number
        transport.finish(transport.receive([time_of], rank, tag, "clock", "control"))
        time_of.fill_(clock())
        transport.finish(transport.send([time_of], rank, tag + 1, "control", "clock"))


def _ask(transport: Transport, clock: Callable[[], float]) -> float:
    time_of = torch.zeros(1, dtype=torch.float64, device=transport.context.device)
    found = []
    for number in range(_ROUNDS):
        tag = _TAG + 2 * number
        start = clock()
        transport.finish(transport.send([time_of], 0, tag, "control", "clock"))
        transport.finish(transport.receive([time_of], 0, tag + 1, "clock", "control"))
        end = clock()
        found.append((end - start, float(time_of) - (start + end) / 2))
    return min(found)[1]


def _host() -> str:
    """The same for processes that share a clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
