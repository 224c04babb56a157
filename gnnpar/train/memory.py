"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

__all__ = ["peak_memory_bytes"]


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
