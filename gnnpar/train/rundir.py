"""The run directory: made once, by one process, with what is needed to run again."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnpar.config.files import config_hash, to_yaml
from gnnpar.config.schema import RunConfig
from gnnpar.data.lock import file_lock, lock_holder
from gnnpar.errors import InputError

__all__ = [
    "check_run_dir",
    "create_run_dir",
    "dataset_title",
    "describe_environment",
    "new_run_dir",
    "run_name",
    "write_atomically",
]

MARKS = ("config.yaml", "command.txt", "env.json")
"""Files by which a run directory is known; only a directory that holds them all is ever replaced."""

LOCK = ".lock"
"""Held by the process that started a run, while it lasts."""


def run_name(config: RunConfig) -> str:
    """<time>-<dataset>-<system>-<hash>."""
    title = dataset_title(config)
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in title)
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}-{config.system}-{config_hash(config)}"


def dataset_title(config: RunConfig) -> str:
    """What people call the dataset: its name, or of a file without one (`dataset=npz`) the file's."""
    data = config.dataset
    return Path(data.path).stem if data.path and data.name == data.kind else data.name


def check_run_dir(config: RunConfig) -> None:
    """Raise `InputError` where `run.dir` cannot be used, or another run uses it. Leaves nothing behind."""
    folder = Path(config.run.dir) if config.run.dir is not None else Path("results/runs")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if os.path.exists(parent))
    try:  # permissions do not tell: root has all, in /proc too
        Path(tempfile.mkdtemp(prefix=".gnnpar-", dir=existing)).rmdir()
        empty = existing != folder or not any(folder.iterdir())
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            "run directory", [f"run.dir: cannot write to {existing} ({reason}); choose another folder"]
        ) from error
    if config.run.dir is None or empty:
        return
    holder = lock_holder(folder / LOCK)
    if holder is not None:
        raise InputError(
            "run directory",
            [f"run.dir: {folder} is in use by {holder}; wait for that run, end it, or choose another folder"],
        )
    known = all((folder / mark).exists() for mark in MARKS)
    if not known:
        raise InputError(
            "run directory", [f"run.dir: {folder} holds files that are not a run's; choose another folder"]
        )
    if not config.run.overwrite:
        raise InputError(
            "run directory",
            [f"run.dir: {folder} already holds a run; choose another folder, or add run.overwrite=true"],
        )


@contextmanager
def new_run_dir(config: RunConfig, command: Sequence[str] = ()) -> Iterator[Path]:
    """`create_run_dir`, and keep the directory from other runs until the block ends."""
    folder = create_run_dir(config, command)
    with file_lock(folder / LOCK, timeout_s=0, what=f"run directory {folder}"):
        try:
            yield folder
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def create_run_dir(config: RunConfig, command: Sequence[str] = ()) -> Path:
    """Make the run directory with `config.yaml`, `command.txt`, `env.json` and `logs/`; its path.

    The directory appears complete or not at all. Call it in one process, after all checks.

    Args:
        command: the command line; that of this process, a Python script's, where empty.
    """
    check_run_dir(config)
    if config.run.dir is not None:
        folder = Path(config.run.dir).absolute()
    else:
        folder = _unused(Path("results/runs").absolute() / run_name(config))
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    (part / "logs").mkdir(parents=True)
    try:
        (part / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
        (part / "command.txt").write_text(
            shlex.join(command or ["python", *sys.argv]) + "\n", encoding="utf-8"
        )
        (part / "env.json").write_text(json.dumps(describe_environment(), indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def describe_environment() -> dict[str, Any]:
    """Versions, machine and revision: what a result depends on beside its configuration."""
    return {
        "gnnpar": _version("gnnpar"),
        "git": _git_revision(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "directory": os.getcwd(),
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
    }


def write_atomically(path: Path, text: str) -> None:
    """Write a file that others see complete or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


_PACKAGES = ("torch", "numpy", "scipy", "numba", "pymetis", "scikit-learn", "torch-geometric", "ogb", "dgl")
_VARIABLES = ("OMP_", "MKL_", "NUMBA_", "MALLOC_", "CUDA_VISIBLE", "NCCL_", "GLOO_", "GNNPAR_")


def _unused(folder: Path) -> Path:
    """The folder, or with a number where runs of the same configuration start within a second."""
    number, found = 2, folder
    while found.exists():
        found = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_revision() -> str | None:
    """Revision of the checkout that this code runs from, `-dirty` where it has changes; None elsewhere."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
