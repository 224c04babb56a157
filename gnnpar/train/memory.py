"""Memory of this process: its peak, and giving back what is free."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import torch

__all__ = ["peak_memory_bytes", "release_freed_memory"]


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory held so far: on a CPU the resident set, libraries included; on a GPU the allocator's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":
        # Not ru_maxrss, which a process inherits from the parent that started it.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_freed_memory() -> None:
    """Return what was freed to the system, where the C library can (glibc); elsewhere does nothing.

    The launcher has glibc keep freed memory, since steps need it again. What was needed only once, before the
    first step, would stay as holes between the buffers that last: 270 MiB a rank on ogbn-arxiv.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
