"""Peak memory of a process."""

import os
from pathlib import Path

import torch

from gnnpar.train.memory import peak_memory_bytes


def test_the_peak_is_in_bytes_and_never_below_what_is_resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    status = Path("/proc/self/status").read_text()
    high = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024
    peak = peak_memory_bytes(torch.device("cpu"))
    assert peak >= 0.9 * pages * os.sysconf("SC_PAGE_SIZE") and abs(peak - high) < 0.1 * high
