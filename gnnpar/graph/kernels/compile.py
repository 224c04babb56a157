"""Compilation of loops with numba: lazily, without the interpreter lock, and cached per user.

The cache lies in `$NUMBA_CACHE_DIR` where that is set, else in the user's cache folder, in a folder named
after the sources of the loops: numba notices a change of the file that holds a function, but not of one that
it calls into.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

__all__ = ["Kernel", "has_numba", "jit", "njit"]


@cache
def has_numba() -> bool:
    """Whether numba can be imported (without importing it)."""
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # `sys.modules["numba"]` is None: hidden on purpose
        return False


def jit(function: Callable[..., Any]) -> Any:
    """Compile for every combination of argument types on its first call. Imports numba."""
    import numba

    config: Any = numba.config
    shared = config.CACHE_DIR
    # The place is settled while the dispatcher is built; other users of numba keep theirs.
    config.CACHE_DIR = shared or str(_cache_folder())
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = shared


class Kernel:
    """A function compiled when first called; plain Python where there is no numba."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = jit(self.function) if has_numba() else self.function
        return compiled

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)


def njit(function: Callable[..., Any]) -> Kernel:
    """Decorator of a loop over NumPy arrays: see `Kernel`."""
    return Kernel(function)


@cache
def _cache_folder() -> Path:
    digest = hashlib.blake2b(digest_size=8)
    package = Path(__file__).parents[2]
    for folder in ("graph/kernels/loops", "batch/loops"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "gnnpar" / "kernels" / digest.hexdigest()
