"""Aggregation and elementwise kernels beside DGL, torch and PyG; writes results/tables/kernels.md.

    GNNPAR_TEST_DATA=<folder of ogbn-arxiv.npz, coauthor-physics.npz> python scripts/bench/kernels.py

Contenders of one row take turns, in a fresh order every round; times are minima over the rounds, ratios the
median over rounds of a contender's time by ours in that round. One process per number of threads, with the
malloc thresholds of glibc raised, so that no contender pays for page faults of the tensors it allocates, and
with idle OpenMP threads put to sleep, so that none takes the cores of the next: as the launcher does it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnpar.dist.launch import OPENMP
from gnnpar.graph import kernels
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.graph.kernels.dgl_sum import block
from gnnpar.interop.dgl import import_dgl
from gnnpar.partition import partition_graph

WIDTHS = (64, 128, 256)
NUM_PARTS, NUM_CHUNKS = 256, 16
Contenders = dict[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/tables/kernels.md"))
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        torch.set_num_threads(options.worker)
        warnings.filterwarnings("ignore", "Sparse (CSR|invariant)")
        print(json.dumps(measure(options.rounds)))
        return
    folder = data_folder()
    tables = {}
    for threads in options.threads:
        print(f"{threads} thread(s) …", file=sys.stderr)
        arguments = [sys.executable, __file__, "--worker", str(threads), "--rounds", str(options.rounds)]
        done = subprocess.run(
            arguments, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True
        )
        tables[threads] = json.loads(done.stdout.splitlines()[-1])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(render(tables, options.rounds), encoding="utf-8")
    print(f"{options.out} (data of {folder})", file=sys.stderr)


def environment(threads: int) -> dict[str, str]:
    malloc = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
    return os.environ | malloc | OPENMP | {"OMP_NUM_THREADS": str(threads), "DGLBACKEND": "pytorch"}


def data_folder() -> Path:
    folder = os.environ.get("GNNPAR_TEST_DATA")
    if not folder:
        raise SystemExit(
            "set GNNPAR_TEST_DATA to the folder that holds ogbn-arxiv.npz and coauthor-physics.npz"
        )
    return Path(folder)


def measure(rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """By title of a row and contender: (milliseconds, time relative to ours)."""
    graph = arxiv()
    whole = graph.permute(partition_graph(graph, NUM_PARTS).order)
    chunks = partition_graph(graph, NUM_CHUNKS)
    chunked, ends = graph.permute(chunks.order), chunks.offsets.tolist()
    # The chunk with the median number of edges.
    sizes = [int(chunked.indptr[stop] - chunked.indptr[start]) for start, stop in pairwise(ends)]
    middle = sizes.index(sorted(sizes)[NUM_CHUNKS // 2])
    results = {}
    for title, source, start, stop in (
        (f"whole graph, METIS-{NUM_PARTS} order", whole, 0, whole.num_nodes),
        (f"one chunk of {NUM_CHUNKS}", chunked, ends[middle], ends[middle + 1]),
    ):
        for width in WIDTHS:
            x = torch.randn(source.num_nodes, width)
            contenders = aggregations(source.indptr[start : stop + 1], source.indices, x)
            results[f"pull, {title}, d = {width}"] = alternate(contenders, rounds)
    results["dropout, [20000, 64]"] = alternate(dropouts(20000, 64), rounds)
    results["relu and dropout, [20000, 64]"] = alternate(relu_dropouts(20000, 64), rounds)
    results["sparse linear map, Coauthor-Physics to 64, dropout 0.5, forward and gradient"] = alternate(
        sparse_maps(), max(3, rounds // 3)
    )
    results["floors"] = floors(whole, rounds)
    return results


def arxiv() -> Graph:
    with np.load(data_folder() / "ogbn-arxiv.npz", allow_pickle=False) as archive:
        edges, num_nodes = archive["edge_index"], int(archive["num_nodes"])
    return Graph.from_edge_index(edges, num_nodes=num_nodes, name="ogbn-arxiv").symmetrize()


def aggregations(indptr: Tensor, indices: Tensor, x: Tensor) -> Contenders:
    first, last = int(indptr[0]), int(indptr[-1])
    local, columns = indptr - first, indices[first:last]
    shape = (indptr.numel() - 1, x.shape[0])
    out = torch.empty(shape[0], x.shape[1])
    ones = torch.ones(last - first)
    matrix = torch.sparse_csr_tensor(local, columns.long(), ones, shape)
    matrix32 = torch.sparse_csr_tensor(local.int(), columns.int(), ones, shape)
    graph = block(local, columns, x.shape[0])
    copy_u_sum = import_dgl().ops.copy_u_sum
    contenders: Contenders = {
        "gnnpar": lambda: kernels.pull(indptr, indices, x, out),
        "DGL copy_u_sum": lambda: copy_u_sum(graph, x),
        "torch sparse.mm reduce": lambda: torch.sparse.mm(matrix, x, "sum"),
        "torch CSR @": lambda: matrix @ x,
        "torch CSR @, int32": lambda: matrix32 @ x,
        "PyG EdgeIndex": edge_index_product(local, columns, shape, x),
    }
    expected = matrix.double() @ x.double()
    for name, contender in contenders.items():
        error = (contender().double() - expected).abs().max()
        if not error < 1e-2:
            raise SystemExit(f"{name} is off by {error}")
    return contenders


def edge_index_product(
    indptr: Tensor, indices: Tensor, shape: tuple[int, int], x: Tensor
) -> Callable[[], object]:
    from torch_geometric import EdgeIndex

    rows = torch.repeat_interleave(torch.arange(shape[0]), indptr.diff())
    edges = EdgeIndex(torch.stack([rows, indices.long()]), sparse_size=shape, sort_order="row")
    edges.fill_cache_()
    return lambda: edges.matmul(x)


def dropouts(num_rows: int, width: int) -> Contenders:
    x, ids, out = torch.randn(num_rows, width), torch.arange(num_rows), torch.empty(num_rows, width)
    key = kernels.DropoutKey(0, 0, 0, 0)
    return {
        "gnnpar": lambda: kernels.drop(x, ids, key, 0.5, out),
        "torch": lambda: torch.dropout(x, 0.5, True),
        "torch copy": lambda: out.copy_(x),
    }


def relu_dropouts(num_rows: int, width: int) -> Contenders:
    x, ids, out = torch.randn(num_rows, width), torch.arange(num_rows), torch.empty(num_rows, width)
    key, scale = kernels.DropoutKey(0, 0, 0, 0), torch.rand(num_rows)
    return {
        "gnnpar, with row scale": lambda: kernels.relu_dropout_scaled(x, ids, key, 0.5, scale, out),
        "gnnpar, gradient": lambda: kernels.relu_dropout_backward(x, x, 0.5, scale, out),
        "torch, without scale": lambda: torch.dropout(torch.relu(x), 0.5, True),
    }


def sparse_maps() -> Contenders:
    with np.load(data_folder() / "coauthor-physics.npz", allow_pickle=False) as archive:
        indptr, indices, values = (
            torch.from_numpy(archive[f"x_{part}"]) for part in ("indptr", "indices", "data")
        )
        num_rows, num_columns = archive["x_shape"].tolist()
    x = SparseRows(indptr.long(), indices.int(), values.float(), num_columns)
    weight = torch.randn(num_columns, 64, requires_grad=True)
    ids, grad, key = torch.arange(num_rows), torch.randn(num_rows, 64), kernels.DropoutKey(0, 0, 0, 0)
    rows = torch.repeat_interleave(torch.arange(num_rows), x.indptr.diff())

    def ours() -> object:
        return torch.autograd.grad(kernels.sparse_linear(x, weight, ids, key, 0.5), weight, grad)

    def by_torch() -> object:
        dropped = torch.dropout(x.values, 0.5, True)
        coo = torch.sparse_coo_tensor(
            torch.stack([rows, x.indices.long()]), dropped, x.shape, is_coalesced=True
        )
        return torch.autograd.grad(torch.sparse.mm(coo, weight), weight, grad)

    return {"gnnpar": ours, "torch COO": by_torch}


def floors(graph: Graph, rounds: int) -> dict[str, tuple[float, float]]:
    """GB/s of a copy (read and written) and of the gather of a quarter of the graph's rows (read), d = 64."""
    source, target = torch.randn(1 << 24), torch.empty(1 << 24)
    x, picks = torch.randn(graph.num_nodes, 64), graph.indices[: graph.num_edges // 4].long()
    rows = torch.empty(picks.numel(), 64)
    times = alternate(
        {
            "copy": lambda: target.copy_(source),
            "gather of rows": lambda: torch.index_select(x, 0, picks, out=rows),
        },
        rounds,
    )
    moved = {"copy": 2 * 4 * source.numel(), "gather of rows": 4 * rows.numel()}
    return {name: (best, moved[name] / best / 1e6) for name, (best, _) in times.items()}


def alternate(contenders: Contenders, rounds: int) -> dict[str, tuple[float, float]]:
    for contender in contenders.values():
        contender()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(list(contenders), len(contenders)):
            start = time.perf_counter()
            contenders[name]()
            times[name].append(1e3 * (time.perf_counter() - start))
    ours = next(iter(times.values()))
    return {
        name: (min(own), statistics.median(t / base for t, base in zip(own, ours, strict=True)))
        for name, own in times.items()
    }


def render(tables: dict[int, dict[str, dict[str, tuple[float, float]]]], rounds: int) -> str:
    lines = [
        "# Kernels",
        "",
        "Written by `python scripts/bench/kernels.py`. Milliseconds (minimum) and, in brackets, time",
        f"relative to the first column (median of {rounds} alternating rounds; above 1: ours is faster).",
        "float32. ogbn-arxiv is symmetrised, without edge weights; forward, on a symmetric graph also the",
        "backward pass too.",
        "",
        f"Machine: {machine()}.",
        f"torch {torch.__version__}, DGL {import_dgl().__version__}, Python {platform.python_version()}.",
    ]
    for threads, results in tables.items():
        lines += ["", f"## {threads} thread{'s' if threads > 1 else ''}"]
        names: list[str] = []
        for title, row in results.items():
            if title == "floors":
                continue
            if list(row) != names:
                names = list(row)
                lines += ["", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
            cells = [f"{best:.3g} ({ratio:.2f})" for best, ratio in row.values()]
            lines.append(f"| {title} | {cells[0].split()[0]} | {' | '.join(cells[1:])} |")
        rates = [f"{name} {rate:.1f} GB/s" for name, (_, rate) in results["floors"].items()]
        lines += ["", f"Floors: {', '.join(rates)}."]
    return "\n".join(lines) + "\n"


def machine() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(
            line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.processor()
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, {load}"


if __name__ == "__main__":
    main()
