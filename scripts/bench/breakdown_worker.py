"""One rank of `breakdown`: trains some steps plainly, some under the profiler, then measures the floors."""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gnnpar.config.files import from_yaml
from gnnpar.dist import Context, Transport
from gnnpar.graph import kernels
from gnnpar.graph.kernels import sparse
from gnnpar.train.job import Job
from gnnpar.train.trainer import Trainer

__all__ = ["main"]

WARM_UP, PLAIN, PROFILED = 3, 7, 4
PREFIX = "gnnpar::"
ELEMENTWISE = (
    "dropout",
    "relu_dropout",
    "relu_dropout_scaled",
    "relu_dropout_backward",
    "scale_rows",
    "split_rows",
)
DENSE = re.compile(r"aten::(mm|addmm|addmm_|bmm|matmul|linear)$")


def main(run_dir: Path) -> None:
    """Called by the launcher in every rank; leaves `breakdown<rank>.json` in the run directory."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    config = from_yaml((run_dir / "config.yaml").read_text())
    context = Context.join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    try:
        _, chunked, model = Job(run_dir).read()
        trainer = Trainer(model, chunked, config, context)
        for _ in range(WARM_UP):
            trainer.train_step()
        plain = [trainer.train_step().seconds for _ in range(PLAIN)]
        seconds, profiled = _profile(trainer)
        found = {
            "epoch_s": statistics.median(plain),
            "profiled_s": profiled,
            "seconds": seconds,
            "floor": _floor(trainer, config.model.hidden),
        }
        (run_dir / f"breakdown{context.rank}.json").write_text(json.dumps(found))
    finally:
        context.close()


def _profile(trainer: Trainer) -> tuple[dict[str, float], float]:
    """Seconds of a step by category, and of the whole step, under the profiler."""
    _name_ranges()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        total = sum(trainer.train_step().seconds for _ in range(PROFILED))
    events = profiler.events()
    thread = next(event.thread for event in events if event.name.startswith(PREFIX))
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in events:
        category = _category(event.name)
        if category is not None and event.thread == thread and not event.is_async:
            seconds[category] += event.self_cpu_time_total * 1e-6 / PROFILED
    return dict(seconds), total / PROFILED


def _category(name: str) -> str | None:
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    if name == "_SparseLinearBackward":
        return "encoder"
    if DENSE.match(name):
        return "dense algebra"
    # backward of the package's own autograd functions, and whatever else torch computes
    return "elementwise" if name.startswith(("aten::", "_")) else None


def _name_ranges() -> None:
    """Make kernels and waits visible to the profiler, in this process only."""
    for module, name, category in (
        (kernels, "pull", "aggregation"),
        *((kernels, name, "elementwise") for name in ELEMENTWISE),
        *((sparse, name, "encoder") for name in ("pull", "drop_nonzeros", "sparse_linear_backward")),
        (Transport, "finish", "waiting"),
        (Context, "broadcast", "waiting"),
    ):
        setattr(module, name, _named(getattr(module, name), PREFIX + category))


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return function(*args, **kwargs)

    return wrapper


def _floor(trainer: Trainer, width: int) -> dict[str, float]:
    """Rates of this machine, and the seconds that this rank's layers cannot do without at these rates."""
    graph, context = trainer.chunked.graph, trainer.context
    num_nodes, num_edges = graph.num_nodes, graph.indices.numel()
    layers = sum(len(stage.aggregations) for stage in trainer.executor.stages.values())
    x, out = torch.rand(num_nodes, width), torch.empty(num_nodes, width)
    row_bytes = x[0].numel() * x.element_size()

    # A sum of thousands of rows at once reads them in the same order, and writes next to nothing.
    stops = torch.arange(0, num_edges, 4096)
    indptr = torch.cat([stops, torch.tensor([num_edges])])
    sums = torch.empty(len(stops), width)

    def gather() -> None:
        kernels.pull(indptr, graph.indices, x, sums)

    rows = max(chunk.num_rows for chunk in trainer.chunked.chunks)
    a, weight, product = torch.rand(rows, width), torch.rand(width, width), torch.empty(rows, width)

    def multiply() -> None:
        for _ in range(num_nodes // rows + 1):
            torch.mm(a, weight, out=product)

    gather_rate = num_edges * row_bytes / _fastest(gather, context)
    copy_rate = 2 * num_nodes * row_bytes / _fastest(lambda: out.copy_(x), context)
    flops = 2 * rows * width**2 * (num_nodes // rows + 1)
    gemm_rate = flops / _fastest(multiply, context)
    gathered = 2 * layers * (num_edges + num_nodes) * row_bytes
    streamed = 8 * layers * num_nodes * row_bytes
    return {
        "layers": layers,
        "gather_rate": gather_rate,
        "copy_rate": copy_rate,
        "gemm_rate": gemm_rate,
        "traffic_s": gathered / gather_rate + streamed / copy_rate,
        "arithmetic_s": 6 * layers * num_nodes * width**2 / gemm_rate,
    }


def _fastest(run: Callable[[], Any], context: Context, repeats: int = 10) -> float:
    """Least seconds of some repeats, all ranks at work at once."""
    run()
    context.barrier("measuring rates")
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
