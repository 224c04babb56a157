"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys

import torch

__all__ = ["peak_memory_bytes"]


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory held so far: on a CPU the resident set, libraries included; on a GPU the allocator's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
