"""Time and memory of a large simulation: `python -m scripts.bench.simulate_large`.

Writes results/tables/simulate_large.md. Every line is one call of `gnnpar simulate`, a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.report import command_line, machine, save, table

CALL = ("simulate", "schedule=one_f_one_b", "stages=1024", "micro_batches=4096")

NOTES = """\
`gnnpar {call}`: 8.4 million actions built, checked,
simulated and summed up by rank. CPU time is that of the process; wall time exceeds it where the machine is
busy. The first call on a machine compiles the event loop (numba), later ones load it from its cache.
`format=json` also writes every action as text.
"""


def measure(*options: str, cache: str) -> tuple[str, ...]:
    """Wall, user and system seconds and peak memory of one call."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    with tempfile.TemporaryFile() as sink:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "gnnpar", *CALL, *options], stdout=sink, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"gnnpar simulate failed with exit code {process.returncode}")
    memory = usage.ru_maxrss / 2**20  # KiB
    return f"{wall:.1f}", f"{usage.ru_utime:.1f}", f"{usage.ru_stime:.1f}", f"{memory:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/tables/simulate_large.md"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        rows = [
            ("first call", *measure(cache=cache)),
            ("later call", *measure(cache=cache)),
            ("later call, format=json", *measure("format=json", cache=cache)),
        ]
    head = ("", "wall s", "user CPU s", "system CPU s", "peak GiB")
    parts = [
        f"`{command_line('scripts.bench.simulate_large')}`",
        NOTES.strip().format(call=" ".join(CALL)),
        table(head, rows),
        machine(),
    ]
    save(args.out, "A large simulation", parts)


if __name__ == "__main__":
    main()
