"""Run a third-party partitioner in a child process: its crash is a message, not the end of the run."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gnnpar.errors import InputError, RunError
from gnnpar.partition.problem import IntArray, Problem

__all__ = ["External", "call_in_child"]

CURE = "partition.method=ldg needs no such library and little memory"


class External:
    """A method whose `solve` is in the file of its name beside this one, and runs in a child process.

    Args:
        name: of the file. library: module that it imports. extra: of gnnpar, that installs the library.
    """

    def __init__(self, name: str, library: str, extra: str = "") -> None:
        self.library = library
        self.extra = extra
        self.file = Path(__file__).with_name(f"{name}.py")

    def __call__(self, problem: Problem) -> IntArray:
        self.require()
        graph = problem.structure
        return call_in_child(
            self.file,
            "solve",
            problem.timeout_s,
            indptr=graph.indptr,
            indices=graph.indices,
            weight=problem.weight,
            num_parts=problem.num_parts,
            seed=problem.seed,
        )

    def require(self) -> None:
        """Raises `InputError` with the line that installs the library, where it is missing."""
        if importlib.util.find_spec(self.library) is None:
            package = f"'gnnpar{self.extra}'"
            raise InputError(
                "partition.method", [f"{self.library} is not installed: pip install {package}, or {CURE}"]
            )


def call_in_child(file: Path, function: str, timeout_s: float, **arguments: npt.ArrayLike) -> IntArray:
    """`function(**arguments)` of a stand-alone `file`, in a fresh process. Arrays travel as files.

    Raises:
        RunError: the child failed, was killed (most often for want of memory), or overran `timeout_s`.
    """
    name = file.stem
    worker = Path(__file__).with_name("_worker.py")
    with tempfile.TemporaryDirectory(prefix="gnnpar-partition-") as folder:
        for key, value in arguments.items():
            np.save(Path(folder, f"{key}.npy"), np.asarray(value))
        # -P: the worker's folder holds files named as the libraries that they import.
        command = [sys.executable, "-P", str(worker), str(file), function, folder]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"partitioner {name}: not done after {timeout_s:g} s, ended; {CURE}") from None
        if done.returncode:
            raise RunError(f"partitioner {name}: {_reason(done.returncode, done.stderr)}; {CURE}")
        result: IntArray = np.load(Path(folder, "result.npy"))
        return result


def _reason(returncode: int, stderr: str) -> str:
    last = stderr.strip().splitlines()[-1:]
    detail = f" ({last[0].strip()})" if last else ""
    if returncode > 0:
        return f"failed with exit code {returncode}{detail}"
    killer = signal.Signals(-returncode).name
    memory = ", most often for want of memory" if killer == "SIGKILL" else ""
    return f"killed by {killer}{memory}{detail}"
