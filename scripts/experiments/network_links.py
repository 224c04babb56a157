"""Where ranks run: on loopback, or each in a network namespace behind a shaped link; how much CPU each gets.

Linux, as root. Everything made here has a name that begins with `gp` and this process's id, and is removed
when its `with` block ends, however it ends.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CpuShares",
    "Network",
    "cpu_shares",
    "faults",
    "free_port",
    "loopback",
    "namespaces",
    "start_words",
    "throughput",
]

CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
TOKENS = ("burst", "256kb", "latency", "20ms")
"""Of the token bucket: 2 ms at line rate, then a queue of 20 ms."""


@dataclass(frozen=True)
class Network:
    """How to start each rank, and under which address rank 0 is found.

    Attributes:
        prefixes: by rank, words in front of the command.
        address: of rank 0. interface: that gloo is to use, in every rank.
    """

    prefixes: tuple[tuple[str, ...], ...]
    address: str
    interface: str


@dataclass(frozen=True)
class CpuShares:
    """Groups with a quota each, one a rank. Processes join by writing their id to `tasks`."""

    folders: tuple[Path, ...]

    def prefix(self, rank: int) -> tuple[str, ...]:
        """Words that put a command into the rank's group. They come first: a namespace hides the groups."""
        procs = shlex.quote(str(self.folders[rank] / "cgroup.procs"))
        return "sh", "-c", f'echo $$ > {procs} && exec "$@"', "rank"


def faults(num_ranks: int) -> list[str]:
    """What this machine lacks for `namespaces` and `cpu_shares`, each with its cure."""
    found = []
    if sys.platform != "linux" or os.geteuid() != 0:
        return ["needs Linux, and root (CAP_NET_ADMIN and CAP_SYS_ADMIN): run it as root"]
    found += [f"{tool} is missing: install iproute2" for tool in ("ip", "tc") if shutil.which(tool) is None]
    if not (CPU / "cpu.shares").exists():
        found.append(f"{CPU}: no cpu controller of cgroup version 1 is mounted there; mount one")
    if not found:
        try:
            with namespaces(min(num_ranks, 2), "1gbit"):
                pass
        except subprocess.CalledProcessError as error:
            found.append(
                f"{shlex.join(error.cmd)}: {error.stderr.strip()}; network namespaces must be allowed"
            )
    return found


@contextmanager
def cpu_shares(num_ranks: int, cores: float) -> Iterator[CpuShares]:
    """`num_ranks` groups of `cores ÷ num_ranks` cores each, by quota of the completely fair scheduler.

    A quota is a ceiling: against other processes of the machine, each rank weighs as much as one of them.
    """
    parent = CPU / f"gp{os.getpid()}"
    folders = tuple(parent / f"rank{rank}" for rank in range(num_ranks))
    parent.mkdir()
    try:
        (parent / "cpu.shares").write_text(str(1024 * num_ranks))
        for folder in folders:
            folder.mkdir()
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * cores / num_ranks)))
        yield CpuShares(folders)
    finally:
        for folder in (*folders, parent):
            _remove_group(folder)


@contextmanager
def loopback(num_ranks: int) -> Iterator[Network]:
    """All ranks in this namespace."""
    yield Network(((),) * num_ranks, "127.0.0.1", "lo")


@contextmanager
def namespaces(num_ranks: int, rate: str) -> Iterator[Network]:
    """A namespace a rank, all on one bridge, each link shaped to `rate` both ways by a token bucket."""
    own = f"gp{os.getpid()}"
    names = [f"{own}-{rank}" for rank in range(num_ranks)]
    with ExitStack() as undo:
        _call("ip", "link", "add", f"{own}br", "type", "bridge")
        undo.callback(_call, "ip", "link", "del", f"{own}br")
        _call("ip", "link", "set", f"{own}br", "up")
        for rank, name in enumerate(names):
            _call("ip", "netns", "add", name)
            undo.callback(_call, "ip", "netns", "del", name)  # and with it both ends of its link
            outside, inside = f"{own}v{rank}", "eth0"
            _call(
                *("ip", "link", "add", outside, "type", "veth"),
                *("peer", "name", inside, "netns", name),
            )
            _call("ip", "link", "set", outside, "master", f"{own}br", "up")
            _call("ip", "-n", name, "address", "add", f"10.77.0.{rank + 1}/24", "dev", inside)
            _call("ip", "-n", name, "link", "set", inside, "up")
            _call("ip", "-n", name, "link", "set", "lo", "up")
            for where, device in ((("-n", name), inside), ((), outside)):
                _call("tc", *where, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, *TOKENS)
        yield Network(tuple(("ip", "netns", "exec", name) for name in names), "10.77.0.1", "eth0")


def throughput(network: Network, megabytes: int = 64) -> float:
    """Bytes a second of one TCP stream from rank 1 to rank 0, measured by two processes of their own."""
    code = (
        "import socket, sys, time\n"
        "address, size = ('{address}', {port}), {size}\n"
        "if sys.argv[1] == 'to':\n"
        "    peer = socket.create_connection(address, timeout=30); peer.sendall(bytes(size)); peer.recv(1)\n"
        "else:\n"
        "    server = socket.create_server(address); server.settimeout(30); print(flush=True)\n"
        "    peer, _ = server.accept(); peer.settimeout(30); left, start = size, time.perf_counter()\n"
        "    while left: left -= len(peer.recv(1 << 20))\n"
        "    print(size / (time.perf_counter() - start)); peer.sendall(b'.')\n"
    )
    code = code.format(address=network.address, port=free_port(), size=megabytes << 20)
    here, there = ([*prefix, sys.executable, "-c", code] for prefix in network.prefixes[:2])
    receiver = subprocess.Popen([*here, "from"], stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout is not None
        receiver.stdout.readline()  # it listens
        subprocess.run([*there, "to"], check=True, timeout=60)
        return float(receiver.communicate(timeout=60)[0])
    finally:
        receiver.kill()
        receiver.wait()


def free_port() -> int:
    """A port that nobody listens on, in this namespace."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


def _remove_group(folder: Path) -> None:
    """Remove a group; its last process may take a moment to leave."""
    deadline = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def start_words(network: Network, shares: CpuShares, rank: int, command: Sequence[str]) -> list[str]:
    """The whole command line of a rank."""
    return [*shares.prefix(rank), *network.prefixes[rank], *command]
