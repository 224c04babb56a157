"""The parent of a run: one worker process a rank, watched until all have ended.

Workers see torchrun's environment variables (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, …). The store of the
rendezvous lives in the parent, on a free port of this host. torchrun's own agent is not used: it takes 0.3 s
more to start, logs to the console, and tells which rank failed first from times in whole seconds, so that it
may name a rank that lost its peer instead of the peer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from torch._C._distributed_c10d import TCPStore

from gnnpar.config.schema import LaunchConfig
from gnnpar.dist.failure import Failure, describe_failures
from gnnpar.errors import GnnparError

__all__ = ["counted", "launch_workers", "num_cores", "signals_raise", "worker_environment"]

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
POLL_S = 0.05
"""How often the parent looks at its workers."""
TERM_S = 3.0
"""What a worker has from SIGTERM to SIGKILL."""

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Keeps glibc from returning every large tensor to the kernel, and asks for huge pages: the page faults of a
hundred elementwise passes over [169343, 64] fall from 749 thousand to some hundreds."""

OPENMP = {"GOMP_SPINCOUNT": "1000"}
"""After a parallel product OpenMP's threads would spin for milliseconds and take the cores from our kernels'
threads: on two threads a pull runs 1.7 times slower for it, an epoch of full batch 1.15 times."""


def launch_workers(
    run_dir: Path, num_ranks: int, config: LaunchConfig, *, module: str = "gnnpar.train.worker"
) -> None:
    """Run `module.main(run_dir)` in `num_ranks` processes and wait for all.

    The first rank writes to this process's console; the others, and every rank's log, to `run_dir/logs`.
    When a rank fails, is killed, or the user interrupts, all are ended within seconds; none outlives this
    process.

    Raises:
        InputError: a worker raised it; the same faults.
        RunError: a rank failed; the text names it, with its signal or its traceback.
        KeyboardInterrupt: on Ctrl-C, after all workers have ended.
    """
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    logs = run_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gnnpar-") as scratch, signals_raise():
        workers: list[_Worker] = []
        threads = int(worker_environment(0, num_ranks, config, store.port)["OMP_NUM_THREADS"])
        ranks = f"{counted(num_ranks, 'rank')}, {counted(threads, 'thread')} each"
        logger.info("starting %s, %s", ranks, counted(num_cores(), "core"))
        try:
            for rank in range(num_ranks):
                environment = worker_environment(rank, num_ranks, config, store.port)
                error_file = Path(scratch) / f"rank{rank}.json"
                command = [sys.executable, "-m", "gnnpar.dist.launched", module, str(run_dir)]
                workers.append(_start(rank, command, environment, logs / f"rank{rank}.log", error_file))
            failed = _wait(workers)
        finally:
            _end(workers)
        if failed:
            raise _error(workers, failed, logs)


def worker_environment(rank: int, num_ranks: int, config: LaunchConfig, port: int) -> dict[str, str]:
    """Environment variables of one worker; what the user has set himself stays, addresses and rank apart."""
    threads = config.threads or max(1, num_cores() // num_ranks)
    defaults = ALLOCATOR | {"OMP_NUM_THREADS": str(threads)}
    if "OMP_WAIT_POLICY" not in os.environ:  # which the count would override
        defaults |= OPENMP
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback:  # gloo would look the host's own name up, which many machines cannot resolve
        defaults["GLOO_SOCKET_IFNAME"] = loopback[0]
    environment = defaults | dict(os.environ)
    if config.threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    for other in ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        environment[other] = environment["OMP_NUM_THREADS"]
    return environment | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is up already: rank 0 must not open one
        "GNNPAR_PARENT": str(os.getpid()),
    }


def counted(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Worker:
    rank: int
    process: subprocess.Popen[bytes]
    error_file: Path
    ended_by_us: bool = False


def _start(
    rank: int, command: list[str], environment: Mapping[str, str], log: Path, error_file: Path
) -> _Worker:
    own = {"GNNPAR_LOG_FILE": str(log), "GNNPAR_ERROR_FILE": str(error_file)}
    console = os.dup(2)
    try:
        with contextlib.ExitStack() as stack:
            output = None
            if rank > 0:
                output = stack.enter_context(log.open("wb"))
                own["GNNPAR_CONSOLE"] = str(console)  # for warnings, which a user should see from any rank
            process = subprocess.Popen(
                command,
                env={**environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(console,) if rank > 0 else (),
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends everyone in order
            )
    finally:
        os.close(console)
    return _Worker(rank, process, error_file)


def _wait(workers: list[_Worker]) -> list[_Worker]:
    """Block until all have ended well, or some have not: those."""
    while True:
        codes = [worker.process.poll() for worker in workers]
        failed = [worker for worker, code in zip(workers, codes, strict=True) if code]
        if failed or all(code == 0 for code in codes):
            return failed
        time.sleep(POLL_S)


def _end(workers: list[_Worker]) -> None:
    """TERM, then KILL, to whoever is left and to what he started."""
    left = [worker for worker in workers if worker.process.poll() is None]
    for worker in left:
        worker.ended_by_us = True
        _kill_group(worker, signal.SIGTERM)
    deadline = time.monotonic() + TERM_S
    for worker in left:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        if worker.process.poll() != 0:
            _kill_group(worker, signal.SIGKILL)
            worker.process.wait()


def _kill_group(worker: _Worker, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, number)


def _error(workers: list[_Worker], first: list[_Worker], logs: Path) -> GnnparError:
    """What to raise: the failures of workers that were not ended by us, or that had failed before that."""
    failures = [
        Failure.of(worker.rank, worker.process.returncode, worker.error_file)
        for worker in workers
        if worker in first or not worker.ended_by_us or worker.error_file.exists()
    ]
    return describe_failures([failure for failure in failures if failure is not None], logs)


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` (SIGINT raises by itself), so that `finally` runs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
