"""Measured against simulated: `python -m scripts.bench.simulated` writes results/tables/simulated.md.

Every family on four ranks, through the real executor and transport in four processes; its stages sleep for
what computation would take. Sleeping needs no core: orders are told apart where cores are fewer than ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch.nn import Parameter

from gnnpar.batch import Chunk
from gnnpar.dist import Context, Transport
from gnnpar.model.norm import BatchNorm
from gnnpar.model.trace import TensorSpec
from gnnpar.runtime import Executor, Stage
from gnnpar.schedule import Costs, Schedule, lower, simulate
from gnnpar.schedule.families import FAMILIES
from gnnpar.trace import Recorder
from scripts.bench.report import command_line, machine, save, table

RANKS, MICRO_BATCHES, REPEATS = 4, 8, 5
FORWARD, INPUT, WEIGHT = 0.020, 0.025, 0.015
"""Seconds of F, I and W of one micro-batch on one rank's share of the layers; B takes I + W."""

NOTES = """\
Four ranks, eight micro-batches; F 20 ms, B 40 ms (I 25, W 15) on a rank's share of the layers, divided among
its stages. Simulated: makespan of the lowered schedule with messages that cost nothing, overlapped pairs one
part after the other, as the executor runs them. Measured: from the first rank's start to the last rank's end,
median of the steps after one that is not counted (least to most of the ratio). Every stage sends 1 KiB a
micro-batch each way; a REDUCE sums 1 KiB. What is measured over the simulation is the executor: messages,
sleeps that last too long, and waking up beside whatever else the machine runs.

graphpipe runs on a chain of stages here, where it is 1F1B. The executor's messages never block, so
bapipe_1f1b_sno is simulated without blocking messages, too.
"""


@dataclass
class SleepingStage:
    """Looks like a `Stage` to the executor; sleeps instead of computing.

    Args:
        share: of a rank's layers that this stage holds.
    """

    share: float
    receives: dict[int, tuple[TensorSpec, ...]]
    sends: dict[int, tuple[TensorSpec, ...]]
    targets: object = None
    split: bool = False
    weights: list[Parameter] = field(default_factory=lambda: [Parameter(torch.zeros(256))])

    def parameters(self) -> list[Parameter]:
        return self.weights

    def batch_norms(self) -> list[BatchNorm]:
        return []

    def forward(self, slot: Any, payloads: Any, reads: Any, step: int, split: bool) -> dict[int, Any]:
        self.split = split
        time.sleep(self.share * FORWARD)
        return self._payloads(slot, self.sends)

    def loss(self, slot: Any) -> torch.Tensor:
        return torch.zeros(())

    def backward(self, slot: Any, gradients: Any, reads: Any, step: int) -> dict[int, Any]:
        time.sleep(self.share * (INPUT if self.split else INPUT + WEIGHT))
        return self._payloads(slot, self.receives)

    def weight_gradients(self, chunks: Iterable[Chunk]) -> None:
        time.sleep(self.share * WEIGHT * len(list(chunks)))

    def _payloads(
        self, slot: tuple[Chunk, ...], edges: dict[int, tuple[TensorSpec, ...]]
    ) -> dict[int, dict[Chunk, Any]]:
        return {
            stage: {chunk: [torch.zeros(chunk.num_rows, *spec.tail) for spec in specs] for chunk in slot}
            for stage, specs in edges.items()
        }


def build(name: str) -> Schedule:
    """The family's schedule; GraphPipe's stages in a chain."""
    chain = [(stage, stage + 1) for stage in range(RANKS - 1)]
    options = {"edges": chain} if name == "graphpipe" else {}
    return lower(FAMILIES[name](RANKS, MICRO_BATCHES, **options))


def simulated(schedule: Schedule) -> float:
    """Seconds of a step."""
    share = schedule.num_ranks / schedule.num_stages
    costs = Costs(F=share * FORWARD, I=share * INPUT, W=share * WEIGHT)
    return simulate(schedule, costs).makespan


def measured(schedule: Schedule, context: Context, repeats: int) -> list[float]:
    """Seconds of every step, the same on all ranks."""
    share = schedule.num_ranks / schedule.num_stages
    spec = (TensorSpec("h", (16,), torch.float32, True),)
    last = schedule.num_stages - 1
    stages = {
        (replica, stage): SleepingStage(
            share,
            dict.fromkeys(schedule.predecessors(stage), spec),
            dict.fromkeys(schedule.successors(stage), spec),
            targets=object() if stage == last else None,
        )
        for replica, stage in schedule.stages_on(context.rank)
    }
    recorder = Recorder()
    executor = Executor(
        context.rank,
        cast("dict[tuple[int, int], Stage]", stages),
        Transport(context, recorder),
        recorder,
        context.device,
    )
    chunks = [Chunk(index, 16 * index, 16 * index + 16) for index in range(schedule.num_micro_batches)]
    reads: Any = SimpleNamespace(slots=tuple((chunk,) for chunk in chunks), of=lambda replica: None)
    found = []
    for step in range(1 + repeats):
        context.barrier("before a step")
        start = time.perf_counter()  # one clock for all processes of a host
        executor.run(schedule, reads, step)
        times = context.gather_objects((start, time.perf_counter()), "times of a step")
        found.append(max(end for _, end in times) - min(begin for begin, _ in times))
    return found[1:]


def run_rank(rank: int, folder: Path, families: list[str], repeats: int) -> None:
    """One process of the four."""
    torch.set_num_threads(1)
    context = Context.join(rank, RANKS, timeout_s=60, init_method=f"file://{folder}/meeting")
    found = {name: measured(build(name), context, repeats) for name in families}
    if context.is_first:
        (folder / "found.json").write_text(json.dumps(found))
    context.barrier("the end")
    context.close()


def run_all(families: list[str], repeats: int) -> dict[str, list[float]]:
    """Seconds of every step of every family."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "scripts.bench.simulated",
            f"--folder={folder}",
            f"--repeats={repeats}",
        ]
        command += ["--families", *families]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([*command, f"--rank={rank}"], env=environment) for rank in range(RANKS)]
        codes = [process.wait() for process in ranks]
        if any(codes):
            raise SystemExit("a rank failed")
        found: dict[str, list[float]] = json.loads(Path(folder, "found.json").read_text())
    return found


def row(name: str, seconds: list[float]) -> tuple[str, ...]:
    schedule = build(name)
    expected = simulated(schedule)
    ratios = sorted(one / expected for one in seconds)
    return (
        name,
        f"{schedule.num_stages // schedule.num_ranks}",
        f"{expected * 1e3:.0f}",
        f"{statistics.median(seconds) * 1e3:.0f}",
        f"{statistics.median(ratios):.3f}",
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=Path("results/tables/simulated.md"))
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args.rank, args.folder, args.families, args.repeats)
        return
    found = run_all(args.families, args.repeats)
    rows = [row(name, seconds) for name, seconds in found.items()]
    worst = max(rows, key=lambda one: abs(float(one[4]) - 1))
    verdict = f"Farthest from 1: {worst[0]}, {worst[4]}."
    head = ("family", "stages a rank", "simulated ms", "measured ms", "ratio", "least to most")
    parts = [
        f"`{command_line('scripts.bench.simulated')}`",
        NOTES.strip(),
        table(head, rows),
        verdict,
        machine(),
    ]
    save(args.out, "Measured against simulated", parts)


if __name__ == "__main__":
    main()
