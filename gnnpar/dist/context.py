"""`Context`: who this process is in the run, and the few collectives that a run needs.

The only module, with `transport` and `launch`, that talks to torch.distributed. A context is passed
explicitly; nothing asks a global for its rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gnnpar.errors import InputError, RunError

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """One process of a run.

    Attributes:
        rank, world_size: position among all processes.
        device: where every tensor of this rank lives.
        timeout_s: deadline of every wait, in seconds.
        backend: `none` in a single process, else `gloo` or `nccl`.
        store: the key-value store of the rendezvous (None in a single process).
    """

    rank: int
    world_size: int
    device: torch.device
    timeout_s: float
    backend: str = "none"
    store: Any = None

    @classmethod
    def single(cls, device: str | torch.device = "cpu", timeout_s: float = 300.0) -> Context:
        """The only process of a run: every collective is the identity."""
        return cls(0, 1, check_device(device), timeout_s)

    @classmethod
    def join(
        cls,
        rank: int,
        world_size: int,
        *,
        device: str | torch.device = "cpu",
        timeout_s: float = 300.0,
        store: Any = None,
        init_method: str = "env://",
    ) -> Context:
        """Join `world_size` processes; returns when all are there.

        Uses nccl where every rank has a GPU of its own, gloo otherwise. Raises `RunError` naming the rank
        when the others do not show up within the deadline.
        """
        wanted = check_device(device)
        placed = place_device(wanted, int(os.environ.get("LOCAL_RANK", rank)))
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
        own_gpu = placed != wanted and torch.cuda.device_count() >= local_ranks
        backend = "nccl" if own_gpu else "gloo"
        if placed.type == "cuda":
            torch.cuda.set_device(placed)
        try:
            dist.init_process_group(
                backend,
                init_method=None if store is not None else init_method,
                store=store,
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=timeout_s),
            )
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"rank {rank} of {world_size}: the other ranks did not join within {timeout_s:g} s "
                f"({_first_line(error)})"
            ) from error
        return cls(rank, world_size, placed, timeout_s, backend, store)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def all_reduce(self, tensor: Tensor, what: str) -> Tensor:
        """Sum over ranks, in place."""
        if self.world_size > 1:
            with self._named(what):
                dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: Tensor, source: int, what: str) -> Tensor:
        """Copy `tensor` of rank `source` to every rank, in place."""
        if self.world_size > 1:
            with self._named(what):
                dist.broadcast(tensor, source)
        return tensor

    def broadcast_object(self, value: Any, source: int, what: str) -> Any:
        """Copy a small Python object of rank `source` to every rank."""
        if self.world_size == 1:
            return value
        box = [value]
        with self._named(what):
            dist.broadcast_object_list(box, source)
        return box[0]

    def gather_objects(self, value: Any, what: str) -> list[Any]:
        """Small Python objects of all ranks, by rank, on every rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        with self._named(what):
            dist.all_gather_object(values, value)
        return values

    def barrier(self, what: str) -> None:
        """Wait for all ranks."""
        self.all_reduce(torch.zeros(1, device=self.device), what)

    def close(self) -> None:
        """Leave the group. Safe to call twice."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            others = [rank for rank in range(self.world_size) if rank != self.rank]
            peers = f"rank {others[0]}" if len(others) == 1 else f"{len(others)} other ranks"
            why = reason(error, self.timeout_s)
            raise RunError(f"rank {self.rank}: waiting for {what} with {peers}: {why}") from error


def check_device(device: str | torch.device) -> torch.device:
    """Parse a device; raises `InputError` for `cuda` on a machine without one."""
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise InputError("device", [f"{device!r} is not a device; use cpu or cuda"]) from error
    if parsed.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", ["cuda asked for, but torch sees no GPU here; use device=cpu"])
    if parsed.type == "cuda" and parsed.index is not None and parsed.index >= torch.cuda.device_count():
        raise InputError("device", [f"{device} asked for, but there are {torch.cuda.device_count()} GPUs"])
    return parsed


def place_device(device: torch.device, rank: int) -> torch.device:
    """Spread ranks over the host's GPUs in turn, where no index was given."""
    if str(device) == "cuda":
        return torch.device("cuda", rank % torch.cuda.device_count())
    return device


def reason(error: BaseException, timeout_s: float) -> str:
    """Why a wait for other ranks ended with an error: its deadline, or a connection that broke."""
    late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
    return f"no answer within {timeout_s:g} s" if late else f"the connection failed ({_first_line(error)})"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
