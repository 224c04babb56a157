"""Where an epoch of gnnpipe goes: `python -m scripts.bench.breakdown` writes results/tables/breakdown.md.

Needs the graphs of GNNPAR_TEST_DATA. GCNII 16 × 64 in two processes of one thread, started by gnnpar's
launcher; `breakdown_worker` measures inside them, and the floors in the same processes at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gnnpar.config import compose
from gnnpar.data import load
from gnnpar.dist.launch import launch_workers
from gnnpar.train.run import write_job
from scripts.bench.epoch import GRAPHS, MODEL
from scripts.bench.report import command_line, machine, save, table

CATEGORIES = ("aggregation", "encoder", "dense algebra", "elementwise", "waiting", "Python and other")

NOTES = """\
Share of a training step by kind of work, from torch.profiler's own ("self") times on the main thread of
each rank, means over the steps profiled; what no operation accounts for is *Python and other*, the
profiler's own cost included (compare the two epoch times). *encoder*: sparse features times its weight,
both ways. *waiting*: for the other rank: messages and the shared loss.

Floors of the graph layers alone, without encoder and decoder, per rank of L layers, N vertices, E in-edges
and d = 64 columns of b = 4 bytes, with rates measured in both ranks at once:

- memory traffic = 2·L·(E + N)·d·b ÷ gather rate + 8·L·N·d·b ÷ copy rate. Both ways, a sum over neighbours
  reads one row an edge and one a vertex. Beside it, a fused layer must move eight times its rows: forward
  read h0, write Z, write X; backward read Z, read X, write D, read and write the gradient of h0. Gather
  rate: rows read in the order of the graph's edges and summed 4096 at a time, so that nearly nothing is
  written; copy rate: bytes read and written.
- arithmetic = 6·L·N·d² ÷ GEMM rate: one product forward, two backward, at the shape of a chunk.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--out", type=Path, default=Path("results/tables/breakdown.md"))
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    shares, floors = [], []
    for graph in args.graphs:
        for rank, found in enumerate(_measure(graph)):
            label = f"{graph}, rank {rank}"
            shares.append((label, *_shares(found)))
            floors.append((label, *_floors(found)))
    head = ("epoch", "s", "profiled s", *CATEGORIES)
    floor_head = (
        "floors",
        "layers",
        "gather GB/s",
        "copy GB/s",
        "GEMM GFLOP/s",
        "traffic s",
        "arithmetic s",
        "of epoch",
    )
    parts = [NOTES.strip(), table(head, shares), table(floor_head, floors)]
    save(
        args.out,
        "Where an epoch goes",
        [*parts, f"Command: `{command_line('scripts.bench.breakdown')}`", machine()],
    )


def _measure(graph: str) -> list[dict[str, Any]]:
    """What the workers of one run found, by rank."""
    path = Path(os.environ["GNNPAR_TEST_DATA"]) / f"{graph}.npz"
    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            [
                *("dataset=npz", f"dataset.path={path}", "dataset.symmetrize=true", "model=gcnii", *MODEL),
                *(
                    "system=gnnpipe",
                    "parallel.stages=2",
                    f"batch.num_chunks={GRAPHS[graph]}",
                    "launch.threads=1",
                ),
                f"run.dir={folder}/run",
            ]
        )
        with ExitStack() as held:
            job = write_job(config, load(config.dataset), None, [], held)
            launch_workers(job.run_dir, 2, config.launch, module="scripts.bench.breakdown_worker")
        return [json.loads((job.run_dir / f"breakdown{rank}.json").read_text()) for rank in range(2)]


def _shares(found: dict[str, Any]) -> tuple[str, ...]:
    profiled = found["profiled_s"]
    known = found["seconds"]
    known["Python and other"] = profiled - sum(known.values())
    percent = (f"{100 * known.get(category, 0.0) / profiled:.0f}%" for category in CATEGORIES)
    return (f"{found['epoch_s']:.3f}", f"{profiled:.3f}", *percent)


def _floors(found: dict[str, Any]) -> tuple[str, ...]:
    floor = found["floor"]
    rates = (f"{floor[key] / 1e9:.1f}" for key in ("gather_rate", "copy_rate", "gemm_rate"))
    both = floor["traffic_s"] + floor["arithmetic_s"]
    times = (
        f"{floor['traffic_s']:.3f}",
        f"{floor['arithmetic_s']:.3f}",
        f"{100 * both / found['epoch_s']:.0f}%",
    )
    return (str(floor["layers"]), *rates, *times)


if __name__ == "__main__":
    main()
