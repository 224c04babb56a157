"""A warm pool of worker processes: importing torch costs seconds a process, so tests share the processes.

    values = pool.run(function, 3, argument)     # function(context, argument) on three ranks

Every call has a process group of its own (gloo over 127.0.0.1) and a deadline. A rank that raises, dies or
hangs fails the call with each rank's traceback or stack; the pool then replaces its processes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair

import cloudpickle

__all__ = ["Pool", "RanksFailed"]

TESTS = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).resolve().parent / "worker.py"
START_S = 90.0
GRACE_S = 5.0
"""What the other ranks get after the first one failed: their collectives fail when its connections close."""


class RanksFailed(Exception):
    """Some ranks of a call raised, died or overran the deadline.

    Attributes:
        texts: rank → traceback, stack or what became of the process; in the order of happening.
        errors: rank → the exception itself, where it survives pickling.
    """

    def __init__(self, what, texts, errors):
        self.texts, self.errors = texts, errors
        parts = [what] + [f"--- rank {rank} ---\n{text.rstrip()}" for rank, text in texts.items()]
        super().__init__("\n".join(parts))


@dataclass
class Worker:
    process: subprocess.Popen
    connection: Connection
    stacks: Path
    output: Path


class Pool:
    """At most `size` workers, started when first needed."""

    def __init__(self, size=4):
        self.size = size
        self._workers = []
        self._folder = tempfile.TemporaryDirectory(prefix="gnnpar-pool-")

    def run(self, function, num_ranks, *args, timeout_s=60.0, **kwargs):
        """`[function(context, *args, **kwargs) of rank 0, of rank 1, …]`.

        Args:
            function: at module level. Its module may be a test module: it is then sent by value.
            num_ranks: 1 runs in a worker too, without a process group.
            timeout_s: deadline of the whole call, and of each wait inside the group, in seconds.

        Raises:
            RanksFailed: with one text a failed rank.
        """
        if not 1 <= num_ranks <= self.size:
            raise ValueError(f"num_ranks must be 1..{self.size}, got {num_ranks}")
        self._start(num_ranks)
        store = _store() if num_ranks > 1 else None
        by_value = _send_module_by_value(function)
        try:
            for rank in range(num_ranks):
                where = {
                    "rank": rank,
                    "world_size": num_ranks,
                    "port": store.port if store is not None else 0,
                    "timeout_s": timeout_s,
                }
                message = cloudpickle.dumps((function, args, kwargs, where))
                self._workers[rank].connection.send_bytes(message)
        finally:
            if by_value is not None:
                cloudpickle.unregister_pickle_by_value(by_value)
        return self._collect(num_ranks, timeout_s, getattr(function, "__name__", "function"))

    def _collect(self, num_ranks, timeout_s, name):
        values, texts, errors = {}, {}, {}
        deadline = time.monotonic() + timeout_s
        pending = {self._workers[rank].connection: rank for rank in range(num_ranks)}
        while pending:
            ready = wait(list(pending), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for connection in ready:
                rank = pending.pop(connection)
                try:
                    kind, content = connection.recv()
                except (EOFError, OSError):
                    kind, content = "died", None
                if kind == "value":
                    values[rank] = cloudpickle.loads(content)
                    continue
                if not texts:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
                texts[rank], errors[rank] = content if kind == "error" else (self._obituary(rank), None)
        late = list(pending.values())
        died = any(self._workers[rank].process.poll() is not None for rank in texts)
        if late:
            why = "still running" if texts else f"deadline of {timeout_s:g} s overrun"
            texts |= {rank: f"{why}\n{stack}" for rank, stack in self._stacks(late).items()}
        if late or died:
            self.close_workers()
        if texts:
            failed = ", ".join(str(rank) for rank in texts)
            what = f"{name} failed on rank {failed} of {num_ranks}"
            raise RanksFailed(what, texts, {k: v for k, v in errors.items() if v is not None})
        return [values[rank] for rank in range(num_ranks)]

    def pids(self):
        """Process ids of the workers that are alive."""
        return [worker.process.pid for worker in self._workers if worker.process.poll() is None]

    def _start(self, num_ranks):
        if any(worker.process.poll() is not None for worker in self._workers[:num_ranks]):
            self.close_workers()
        new = [self._spawn(index) for index in range(len(self._workers), num_ranks)]
        self._workers += new
        deadline = time.monotonic() + START_S
        for worker in new:
            if not worker.connection.poll(max(0.0, deadline - time.monotonic())):
                text = worker.output.read_text()
                self.close_workers()
                raise RuntimeError(f"a worker did not start within {START_S:g} s\n{text}")
            try:
                worker.connection.recv()
            except EOFError:
                text = worker.output.read_text()
                self.close_workers()
                raise RuntimeError(f"a worker died at its start\n{text}") from None

    def _spawn(self, index):
        stamp = f"{index}-{time.monotonic_ns()}"
        stacks, output = (Path(self._folder.name) / f"{stamp}.{kind}" for kind in ("stacks", "output"))
        ours, theirs = socketpair()
        environment = os.environ | {
            "POOL_PARENT": str(os.getpid()),
            "POOL_PATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        with theirs, output.open("w") as sink:
            process = subprocess.Popen(
                [sys.executable, "-u", str(WORKER), str(index), str(theirs.fileno()), str(stacks)],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches pytest only, which closes the pool
            )
        return Worker(process, Connection(ours.detach()), stacks, output)

    def _stacks(self, ranks):
        """Python stacks of hanging workers, by rank."""
        for rank in ranks:
            self._workers[rank].process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        stacks = {}
        for rank in ranks:
            worker = self._workers[rank]
            text = worker.stacks.read_text() or "(no Python stack: the process does not answer)"
            stacks[rank] = text + _tail(worker.output)
        return stacks

    def _obituary(self, rank):
        worker = self._workers[rank]
        code = worker.process.wait(GRACE_S)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process died: {how}{_tail(worker.output)}"

    def close_workers(self):
        """Kill all workers; a later call starts new ones."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.connection.close()
        self._workers = []

    def close(self):
        self.close_workers()
        self._folder.cleanup()


def _store():
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def _send_module_by_value(function):
    """Test modules cannot be imported by workers: register them with cloudpickle; None where importable."""
    module = sys.modules.get(getattr(function, "__module__", None))
    if module is None or not module.__name__.rpartition(".")[2].startswith("test_"):
        return None
    cloudpickle.register_pickle_by_value(module)
    return module


def _tail(path, num_chars=3000):
    text = path.read_text(errors="replace").strip()
    return f"\nits output ended with\n{text[-num_chars:]}" if text else ""
