"""A rank of a run: what it does before and after its work, under our launcher, torchrun or Slurm.

`python -m gnnpar.dist.launched MODULE RUN_DIR` is what the launcher starts: `MODULE.main(Path(RUN_DIR))`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch
from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from gnnpar.config.schema import LaunchConfig
from gnnpar.dist.failure import Failure, write_failure
from gnnpar.dist.launch import counted, num_cores
from gnnpar.errors import InputError, RunError

__all__ = ["Membership", "adopt_slurm", "is_first_process", "main", "settle", "under_launcher"]

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
SLURM_PORTS = range(20_000, 60_000)


def under_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """True where torchrun, Slurm's srun or the like started one process a rank: this one is a worker then.

    A batch script of Slurm is no worker: srun alone sets the variables of a step with several tasks.
    """
    return {"RANK", "WORLD_SIZE"} <= environment.keys() or _slurm_tasks(environment) > 1


def is_first_process(environment: Mapping[str, str] = os.environ) -> bool:
    """True for rank 0, and for a process under no launcher: the one that speaks to the user."""
    slurm_rank = environment.get("SLURM_PROCID", "0") if _slurm_tasks(environment) > 1 else "0"
    return environment.get("RANK", slurm_rank) == "0"


def adopt_slurm(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set torchrun's variables from srun's, where they are missing."""
    if "RANK" in environment or _slurm_tasks(environment) < 2:
        return
    job = int(environment.get("SLURM_JOB_ID", "0"))
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    several = int(environment.get("SLURM_STEP_NUM_NODES", "1")) > 1
    adopted = {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": first_host(nodes) if several else "localhost",
        "MASTER_PORT": str(SLURM_PORTS[job % len(SLURM_PORTS)]),
    }
    for name, value in adopted.items():
        environment.setdefault(name, value)


def first_host(nodes: str) -> str:
    """First host of a Slurm node list: `n[07-09,12],m1` → `n07`."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes)
    if found is None:
        raise InputError("Slurm", [f"SLURM_STEP_NODELIST: cannot read {nodes!r}; set MASTER_ADDR by hand"])
    return "".join(part or "" for part in found.groups())


def settle(config: LaunchConfig, environment: Mapping[str, str] = os.environ) -> int:
    """In a process that torchrun or srun has started, do what our launcher does through the environment.

    Sets the allocator's thresholds and torch's threads; returns how many. torchrun sets `OMP_NUM_THREADS=1`
    for users who have not set it: there, 1 does not count as a wish.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        if mallopt is not None:
            mallopt(parameter, (1 << 31) - 1)
    wished = int(environment.get("OMP_NUM_THREADS", "0"))
    if wished == 1 and "TORCHELASTIC_RUN_ID" in environment:
        wished = 0
    local = environment.get("LOCAL_WORLD_SIZE") or environment.get("SLURM_STEP_TASKS_PER_NODE", "1")
    ranks_here = int(local.partition("(")[0].partition(",")[0])
    threads = config.threads or wished or max(1, num_cores() // ranks_here)
    torch.set_num_threads(threads)
    ranks = f"{counted(ranks_here, 'rank')} here, {counted(threads, 'thread')} each"
    logger.info("%s, %s", ranks, counted(num_cores(), "core"))
    return threads


@dataclass(frozen=True)
class Membership:
    """This process among those that torchrun or srun started.

    Attributes:
        store: key-value store of the rendezvous; also for `Context.join(store=…)`.
    """

    rank: int
    world_size: int
    store: Store

    @classmethod
    def join(cls, timeout_s: float) -> Membership:
        """Connect to the rendezvous. Raises `RunError` where it cannot be reached within the deadline."""
        adopt_slurm()
        try:
            store, rank, world_size = next(iter(rendezvous("env://", timeout=timedelta(seconds=timeout_s))))
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise RunError(f"rank {os.environ.get('RANK')}: no rendezvous ({reason})") from error
        store.set_timeout(timedelta(seconds=timeout_s))
        return cls(rank, world_size, store)

    def share(self, make: Callable[[], str], what: str) -> str:
        """What `make` returns on rank 0, on every rank; its `InputError` is raised on every rank, too.

        The other ranks wait until the deadline of `join`, then raise `RunError`.
        """
        key = f"gnnpar/share/{what}"
        if self.rank > 0:
            return self._receive(key, what)
        answer: dict[str, Any] = {"value": "", "title": "", "faults": (), "failure": ""}
        try:
            answer["value"] = make()
        except InputError as error:
            answer |= {"title": error.title, "faults": error.faults}
            raise
        except BaseException as error:
            answer["failure"] = f"rank 0: {what}: {type(error).__name__} {error}"
            raise
        finally:
            self.store.set(key, json.dumps(answer))
        return str(answer["value"])

    def _receive(self, key: str, what: str) -> str:
        try:
            answer = json.loads(self.store.get(key))
        except RuntimeError as error:
            raise RunError(f"rank {self.rank}: {what}: nothing came from rank 0 in time") from error
        if answer["title"]:
            raise InputError(answer["title"], answer["faults"])
        if answer["failure"]:
            raise RunError(answer["failure"])
        return str(answer["value"])


def main(argv: list[str]) -> NoReturn:
    """Run a worker's module, and end this process. Failures go to the parent, who prints them.

    It ends without the interpreter's teardown: a group that is broken may hang in its destructors, and one that
    is not aborts there now and then, which would make a failure of a finished run.
    """
    module, run_dir = argv
    rank = int(os.environ["RANK"])
    die_with_parent(int(os.environ["GNNPAR_PARENT"]))
    log = open_log(rank, Path(os.environ["GNNPAR_LOG_FILE"]))
    faulthandler.enable(log)
    # Whoever ends this rank wants to know where it was.
    faulthandler.register(signal.SIGTERM, file=log, chain=True)
    try:
        importlib.import_module(module).main(Path(run_dir))
    except Exception as error:
        failure = Failure.of_exception(rank, error)
        write_failure(failure, Path(os.environ["GNNPAR_ERROR_FILE"]))
        print(failure.trace or failure.text, file=log, flush=True)
        _end(2 if isinstance(error, InputError) else 1)
    _end(0)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def die_with_parent(parent: int) -> None:
    """Ask the kernel (Linux) to kill this process when its parent dies, and end at once if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def open_log(rank: int, file: Path) -> TextIO:
    """Log to `file`; to the console from INFO on in rank 0, from WARNING on in the others.

    Loggers named `….rank` tell what each rank does, to its file alone.
    """
    log = file.open("a", encoding="utf-8", buffering=1)
    console = os.fdopen(int(os.environ["GNNPAR_CONSOLE"]), "w", buffering=1) if rank else sys.stderr
    to_console = logging.StreamHandler(console)
    to_console.setLevel(logging.WARNING if rank else logging.INFO)
    to_console.addFilter(lambda record: not record.name.endswith(".rank"))
    to_console.setFormatter(logging.Formatter(f"rank {rank}: %(message)s" if rank else "%(message)s"))
    to_file = logging.StreamHandler(log)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("gnnpar")
    root.setLevel(logging.INFO)
    root.propagate = False
    root.handlers = [to_console, to_file]
    return log


def _slurm_tasks(environment: Mapping[str, str]) -> int:
    if "SLURM_PROCID" not in environment:
        return 0
    return int(environment.get("SLURM_STEP_NUM_TASKS", "0"))


if __name__ == "__main__":
    main(sys.argv[1:])
