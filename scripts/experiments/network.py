"""Graph parallelism, pipeline and hybrid over a network: `python -m scripts.experiments.network`.

Writes results/tables/network.md; needs the graphs of GNNPAR_TEST_DATA, Linux, root, network namespaces,
iproute2 and the cpu controller of cgroups (version 1). GCNII 32 × 100 on four ranks, each held to the same
share of the cores; first on loopback, then each rank in a network namespace of its own behind a shaped link.
Namespaces, links and groups are removed at the end, after failures too. Every run's bytes must equal their
closed forms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnpar.config.schema import RunConfig
from gnnpar.dist.launch import ALLOCATOR, OPENMP
from scripts.bench.report import command_line, machine, save
from scripts.experiments.network_bytes import Volume, halo_rows
from scripts.experiments.network_links import (
    CpuShares,
    Network,
    cpu_shares,
    faults,
    free_port,
    loopback,
    namespaces,
    start_words,
    throughput,
)
from scripts.experiments.network_page import Measured, page

RANKS = 4
RECOMPUTE = "memory.recompute=true"
"""On the two large graphs, where four ranks would fill the memory of a host of 24 GiB otherwise."""
GRAPHS = {
    "squirrel": ("dataset=squirrel",),
    "coauthor-physics": ("dataset=coauthor-physics",),
    "ogbn-arxiv": ("dataset=npz", "dataset.symmetrize=true", RECOMPUTE),
    "flickr-nofeat": ("dataset=flickr", "dataset.features=random", "dataset.num_features=500", RECOMPUTE),
}
SYSTEMS = {
    "graph": ("system=graph_parallel", f"parallel.ways={RANKS}"),
    "pipeline": ("system=gnnpipe", f"parallel.stages={RANKS}", "batch.num_chunks=16"),
    "hybrid": ("system=gnnpipe_hybrid", "parallel.stages=2", "parallel.ways=2", "batch.num_chunks=8"),
}
MODEL = (
    *("model=gcnii", "model.dropout=0.5", "train.lr=0.001", "train.weight_decay=0"),
    *("launch.threads=1", "launch.timeout_s=600", "trace.tensorboard=false"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=7, help="of every run")
    parser.add_argument("--cores", type=float, default=2.0, help="that the ranks share")
    parser.add_argument("--rate", default="1gbit", help="of each link, as tc writes it")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds after which a run is ended")
    parser.add_argument("--out", type=Path, default=Path("results/tables/network.md"))
    args = parser.parse_args()
    if "GNNPAR_TEST_DATA" not in os.environ:
        parser.error("set GNNPAR_TEST_DATA to the folder of the graphs")
    missing = faults(RANKS)
    if missing:
        parser.error("; ".join(missing))
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that `with` blocks end
        signal.signal(number, lambda caught, _: sys.exit(128 + caught))
    with cpu_shares(RANKS, args.cores) as shares:
        with loopback(RANKS) as network:
            rates = {"loopback": throughput(network)}
            found, failed = _measure_all("loopback", network, shares, args, {})
        with namespaces(RANKS, args.rate) as network:
            rates[args.rate] = throughput(network)
            splits = {(one.graph, one.system): one.split for one in found}
            more, also_failed = _measure_all(args.rate, network, shares, args, splits)
    failed += also_failed
    text = [f"Command: `{command_line('scripts.experiments.network')}`", machine()]
    if os.getloadavg()[2] > 2 * RANKS:
        text.insert(0, "Other jobs ran meanwhile: times and waiting are disturbed, bytes are not.")
    if failed:
        text.insert(0, "Without a result: " + "; ".join(failed))
    parts = page([*found, *more], rates, args.epochs, args.cores) if found else []
    save(args.out, "Four ranks over a network", [*parts, *text])
    sys.exit(1 if failed else 0)


Splits = dict[tuple[str, str], list[int]]


class Failed(Exception):
    """A run that failed, or that sent other bytes than it should."""


def _measure_all(
    label: str, network: Network, shares: CpuShares, args: argparse.Namespace, splits: Splits
) -> tuple[list[Measured], list[str]]:
    """Every graph and system on one network, one after the other; and what failed."""
    found, failed = [], []
    for graph in args.graphs:
        for system in args.systems:
            start = time.monotonic()
            try:
                one = _measure(label, graph, system, network, shares, args, splits.get((graph, system)))
            except Failed as error:
                failed.append(f"{label}, {graph}, {system}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
                continue
            print(
                f"{label}, {graph}, {system}: {one.epoch_s:.3f} s an epoch, {one.cpu_s:.3f} s of CPU, "
                f"waiting {one.waiting:.0%}; run took {time.monotonic() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            found.append(one)
    return found, failed


def _measure(
    label: str,
    graph: str,
    system: str,
    network: Network,
    shares: CpuShares,
    args: argparse.Namespace,
    split: list[int] | None,
) -> Measured:
    """One run. `split`: layers of each stage, where an earlier run has balanced them."""
    from gnnpar.config import compose

    path = Path(os.environ["GNNPAR_TEST_DATA"]).absolute() / f"{graph}.npz"
    keys = [*GRAPHS[graph], f"dataset.path={path}", *MODEL, *SYSTEMS[system]]
    keys += [f"model.num_layers={args.layers}", f"model.hidden={args.width}"]
    keys += [f"train.num_epochs={args.epochs}", f"train.eval_every={args.epochs}"]
    if split is not None:
        keys.append(f"parallel.layers_per_stage=[{','.join(map(str, split))}]")
    with tempfile.TemporaryDirectory(prefix="gnnpar-network-") as folder:
        keys.append(f"run.dir={folder}/run")
        _run(keys, Path(folder), network, shares, args.timeout)
        summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    counted = count(compose(keys), args.epochs - 1, summary)
    wanted = {kind: number for kind, number in counted.wanted.by_kind().items() if number}
    sent = {kind: number for kind, number in summary["bytes_per_epoch"].items() if number}
    if sent != wanted:
        raise Failed(f"sent {sent} bytes, but the closed forms say {wanted}")
    return Measured(
        network=label,
        graph=graph,
        system=system,
        epoch_s=summary["epoch_time_s"],
        cpu_s=sum(summary["epoch_cpu_s"]),
        waiting=summary["bubble"],
        bubble=summary["bubble_theory"],
        memory=max(summary["peak_memory_bytes"]),
        split=summary["layers_per_stage"],
        sent=sent,
        volume=counted.wanted,
        mirrors=counted.mirrors,
    )


@dataclass(frozen=True)
class Counted:
    """Closed forms of a run. mirrors: R of the graph cut into as many parts as there are ways, 0 for one."""

    wanted: Volume
    mirrors: int


def count(config: RunConfig, step: int, summary: dict[str, Any]) -> Counted:
    """What step number `step` of a run should send."""
    from gnnpar.batch import slot_order
    from gnnpar.data import load
    from gnnpar.dist import Mesh
    from gnnpar.train.job import make_model
    from gnnpar.train.run import cut

    graph, mesh = load(config.dataset), Mesh.of(config)
    ways, rows, mirrors = mesh.ways[0], (0, 0), 0
    if ways > 1:
        edges = graph.indices.long().numpy(), graph.destinations.numpy()
        chunk_of = cut(config, graph).assignment.long().numpy()
        order = slot_order(
            config.batch.num_chunks, mesh.slot_size, config.seed, step, shuffle=config.batch.shuffle
        )
        place = [order.index(chunk) // mesh.slot_size for chunk in range(mesh.num_chunks)]
        rows = halo_rows(*edges, chunk_of, place, ways)
        mirrors = halo_rows(*edges, chunk_of, [0] * len(place), ways)[0]
    volume = Volume(
        num_nodes=graph.num_nodes,
        num_layers=config.model.num_layers,
        width=config.model.hidden,
        num_parameters=summary["num_parameters"],
        num_tensors=len(list(make_model(config, graph).parameters())),
        stages=config.parallel.stages,
        ways=ways,
        rows=rows,
    )
    return Counted(volume, mirrors)


def _run(keys: Sequence[str], folder: Path, network: Network, shares: CpuShares, timeout_s: float) -> None:
    """`gnnpar train` in every rank, as torchrun would start it. All end when one fails or time is up."""
    port, ranks, logs = free_port(), [], [folder / f"rank{rank}.log" for rank in range(RANKS)]
    # No huge pages: ways touch rows here and there of large buffers, and four ranks share one host's memory.
    allocator = {name: value for name, value in ALLOCATOR.items() if name != "GLIBC_TUNABLES"}
    common = dict(os.environ) | allocator | OPENMP
    common |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    common |= {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port)}
    common |= {"MASTER_ADDR": network.address, "GLOO_SOCKET_IFNAME": network.interface}
    try:
        for rank, log in enumerate(logs):
            words = start_words(network, shares, rank, [sys.executable, "-m", "gnnpar", "train", *keys])
            with log.open("wb") as output:
                ranks.append(
                    subprocess.Popen(
                        words,
                        env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
        _wait(ranks, logs, timeout_s)
    finally:
        for process in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(ranks: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        codes = [process.poll() for process in ranks]
        if all(code == 0 for code in codes):
            return
        failed = [rank for rank, code in enumerate(codes) if code]
        late = time.monotonic() > deadline
        if failed or late:
            rank = failed[0] if failed else codes.index(None)
            why = f"ended with code {codes[rank]}" if failed else f"did not end within {timeout_s:g} s"
            raise Failed(f"rank {rank} {why}; its last words:\n{logs[rank].read_text()[-2000:]}")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
