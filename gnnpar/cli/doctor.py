"""`gnnpar doctor`: is this machine fit to train, and if not, why."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from gnnpar.cli.options import split_options, wants_help
from gnnpar.cli.table import bytes_text, print_json, print_rows
from gnnpar.errors import InputError

__all__ = ["Check", "checks", "main"]

USAGE = """usage: gnnpar doctor [format=table|json]

Checks Python, packages, threads, the network that ranks talk over, memory and disk. Exit code 1 if something
that training needs is missing.
"""

REQUIRED = (
    "torch",
    "numpy",
    "scipy",
    "sklearn",
    "numba",
    "pymetis",
    "hydra",
    "omegaconf",
    "rich",
    "tensorboard",
    "matplotlib",
    "torch_geometric",
    "ogb",
    "cloudpickle",
)
OPTIONAL = {"dgl": "dgl", "mtkahypar": "partition", "kahip": "partition"}
"""Packages of the extras, with the extra that brings each."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Literal["ok", "missing", "warning", "error"]
    detail: str


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    options, rest = split_options(argv)
    if rest:
        raise InputError("gnnpar doctor", [f"takes no {rest[0]!r}"])
    found = list(checks())
    if options["format"] == "json":
        print_json([asdict(check) for check in found])
    else:
        rows = ((one.name, one.status, one.detail) for one in found)
        print_rows("", ["check", "status", "detail"], rows, align="lll")
    return 1 if any(one.status == "error" for one in found) else 0


def checks() -> Iterator[Check]:
    """All checks, one after the other."""
    yield Check("python", "ok", f"{platform.python_version()}, {sys.executable}")
    for name in REQUIRED:
        yield _package(name, importlib.import_module)
    for name in OPTIONAL:
        found = _package(name, _import_dgl if name == "dgl" else importlib.import_module, OPTIONAL[name])
        yield _with_shim(found) if name == "dgl" and found.status == "ok" else found
    for check in (_numba, _threads, _cuda, _loopback, _host_name, _gloo, _memory, _disk):
        try:
            yield check()
        except Exception as error:
            yield Check(check.__name__.strip("_"), "error", f"{type(error).__name__}: {error}")


def _package(name: str, load: Callable[[str], object], extra: str = "") -> Check:
    """Imported, not only found: the original error is what helps, and a broken package may raise anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's packages, wherever they make an error of them
            load(name)
    except ModuleNotFoundError as error:
        if error.name == name and extra:
            return Check(name, "missing", f"optional; pip install 'gnnpar[{extra}]'")
        return Check(name, "warning" if extra else "error", f"ModuleNotFoundError: {error}")
    except Exception as error:
        return Check(name, "warning" if extra else "error", f"{type(error).__name__}: {error}")
    return Check(name, "ok", _version(name))


def _version(module: str) -> str:
    names = importlib.metadata.packages_distributions().get(module, [module])
    return importlib.metadata.version(names[0])


def _import_dgl(name: str) -> object:
    from gnnpar.interop.dgl import import_dgl

    return import_dgl()


def _with_shim(found: Check) -> Check:
    """Says so where a plain import of DGL fails. Tried in a process of its own: this one has imported it."""
    environment = os.environ | {"DGLBACKEND": "pytorch"}
    plain = subprocess.run(
        [sys.executable, "-c", "import dgl"], env=environment, capture_output=True, timeout=120
    )
    if plain.returncode == 0:
        return found
    text = plain.stderr.decode(errors="replace").strip().splitlines()
    reason = f" ({text[-1]})" if text else ""
    shim = f"{found.detail}, through gnnpar.interop.dgl.import_dgl(); a plain `import dgl` fails{reason}"
    return Check(found.name, "ok", shim)


def _numba() -> Check:
    import numba
    import numpy as np

    @numba.njit
    def double(values):  # type: ignore[no-untyped-def]
        return values * 2

    if double(np.ones(1))[0] != 2:
        return Check("numba compiles", "error", "gives a wrong result")
    return Check("numba compiles", "ok", f"{numba.get_num_threads()} threads at most")


def _threads() -> Check:
    import torch

    from gnnpar.dist.launch import num_cores

    detail = f"{num_cores()} cores, torch uses {torch.get_num_threads()} threads"
    if "OMP_NUM_THREADS" in os.environ:
        detail += f", OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} (ranks keep to it)"
    return Check("threads", "ok", detail)


def _cuda() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("cuda", "ok", f"no GPU; torch {torch.__version__} runs on the CPU")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Check("cuda", "ok", ", ".join(names))


def _loopback() -> Check:
    names = [name for _, name in socket.if_nameindex()]
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    return Check("loopback", "ok", f"127.0.0.1 connects; interfaces: {', '.join(names)}")


def _host_name() -> Check:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        return Check(
            "host name",
            "warning",
            f"{name} does not resolve ({error}); fine on one host, set GLOO_SOCKET_IFNAME across hosts",
        )
    return Check("host name", "ok", f"{name} is {address}")


def _gloo() -> Check:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore

    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback_name())
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()
    return Check("gloo", "ok", f"a group forms on {os.environ['GLOO_SOCKET_IFNAME']}")


def _loopback_name() -> str:
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def _memory() -> Check:
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    return Check("memory", "ok", f"{bytes_text(total)}, {bytes_text(free)} free")


def _disk() -> Check:
    from gnnpar.data.home import data_home

    home = data_home()
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    writable = os.access(existing, os.W_OK)
    detail = f"data in {home}, {bytes_text(free)} free; runs in {Path('results/runs').absolute()}"
    if not writable:
        return Check("disk", "error", f"{existing} cannot be written; set GNNPAR_DATA to a folder that can")
    return Check("disk", "ok" if free > 1 << 30 else "warning", detail)
