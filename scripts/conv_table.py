"""Probe convolutions of another library, train each accepted one in two stages, and write a table of both."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, HistoryConfig, ParallelConfig, RunConfig, TrainConfig
from gnnpar.dist import Context
from gnnpar.errors import InputError
from gnnpar.graph import Graph
from gnnpar.model import LayerStack, probe
from gnnpar.train.trainer import Trainer

__all__ = ["Case", "mlp", "write_table"]

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH = 8
NUM_CHUNKS, NUM_STEPS = 4, 6


def mlp(in_features: int, out_features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_features, 8), nn.ReLU(), nn.Linear(8, out_features))


@dataclass(frozen=True)
class Case:
    """One way to construct a convolution.

    Attributes:
        call: Python text, as the table shows it.
        names: gives the names that the text may use.
        edge_features: how many the graph must carry for it.
    """

    call: str
    names: Callable[[], dict[str, Any]]
    edge_features: int = 0

    def make(self) -> nn.Module:
        # The text is that of a table in this folder; it is also what the document shows.
        module: nn.Module = eval(self.call, self.names() | {"mlp": mlp, "nn": nn, "tensor": torch.tensor})
        return module


@dataclass
class Row:
    case: Case
    accepted: bool
    note: str


def judge(case: Case) -> Row:
    """Construct and probe one convolution."""
    try:
        module = case.make()
    except Exception as error:  # a class that this installation cannot construct is a line of the table, too
        return Row(case, False, f"cannot be constructed here: {first_line(error)}")
    try:
        layer = probe(module, WIDTH, edge_features=case.edge_features)
    except InputError as error:
        return Row(case, False, "; ".join(error.faults))
    note = str(layer.strategy) + (", reads `h0`" if layer.reads else "")
    return Row(case, True, note + (", depends on chunking" if layer.chunk_dependent else ""))


def train(rank: int, world_size: int, store: str, accepted: list[Case]) -> None:
    """Train a small model around every accepted convolution; raises where one does not learn."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    context = Context.join(rank, world_size, init_method=f"file://{store}", timeout_s=60)
    for case in accepted:
        torch.manual_seed(0)
        graph = random_graph(case.edge_features)
        width = int(probe_width(case))
        layers = [case.make(), nn.ReLU(), nn.Linear(width, WIDTH), case.make(), nn.ReLU()]
        model = LayerStack(nn.Linear(graph.num_features, WIDTH), layers, nn.Linear(width, graph.num_classes))
        config = RunConfig(
            dtype="float64",
            parallel=ParallelConfig(stages=world_size),
            batch=BatchConfig(num_chunks=NUM_CHUNKS),
            history=HistoryConfig(mode="latest"),
            train=TrainConfig(lr=0.01),
        )
        offsets = tuple(graph.num_nodes * chunk // NUM_CHUNKS for chunk in range(NUM_CHUNKS + 1))
        trainer = Trainer(model, ChunkedGraph(graph, offsets), config, context)
        before = {name: p.clone() for name, p in trainer.parameters().items()}
        losses = [trainer.train_step().loss for _ in range(NUM_STEPS)]
        moved = any(not torch.equal(p, before[name]) for name, p in trainer.parameters().items())
        if not moved:
            raise RuntimeError(f"{case.call}: rank {rank}: no parameter of the stage moved; losses {losses}")
    context.close()


def probe_width(case: Case) -> int:
    """Width of what the convolution gives for rows of `WIDTH`."""
    graph = random_graph(case.edge_features)
    stack = LayerStack(nn.Linear(graph.num_features, WIDTH), [case.make()], nn.Identity()).double()
    return int(stack.eval()(graph).shape[1])


def random_graph(edge_features: int) -> Graph:
    """A directed graph of 60 vertices, of which half are labelled for training."""
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 240), generator=draw)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    labelled = torch.arange(60) % 2 == 0
    return Graph.from_edge_index(
        edges,
        x=torch.rand(60, 5, dtype=torch.float64, generator=draw),
        y=torch.randint(3, (60,), generator=draw),
        train_mask=labelled,
        val_mask=~labelled,
        test_mask=~labelled,
        num_classes=3,
        edge_attr=torch.rand(edges.shape[1], edge_features, dtype=torch.float64) if edge_features else None,
    )


def document(title: str, script: str, version: str, source: str, rows: list[Row]) -> str:
    accepted = [row for row in rows if row.accepted]
    refused = [row for row in rows if not row.accepted]
    lines = [
        f"# {title} convolutions",
        "",
        f"Written by `python scripts/{script}` with {title} {version}. Every class of `{source}`",
        "was probed on a directed graph of 12 vertices, and every accepted one was trained in two stages on",
        f"{NUM_CHUNKS} chunks with histories. How a convolution runs on a part of the graph (bipartite,",
        "square, padded, counted) is explained in `gnnpar.model.adapters`.",
        "",
        f"## Accepted ({len(accepted)})",
        "",
        "| convolution | runs |",
        "|---|---|",
        *(f"| `{row.case.call}` | {row.note} |" for row in accepted),
        "",
        f"## Refused ({len(refused)})",
        "",
        "| convolution | why |",
        "|---|---|",
        *(f"| `{row.case.call}` | {row.note.replace('|', '/')} |" for row in refused),
        "",
    ]
    return "\n".join(lines)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def write_table(cases: list[Case], title: str, script: str, version: str, source: str) -> int:
    """Probe, train, and write `docs/<title>-convolutions.md`, or compare with it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=script)
    parser.add_argument("--check", action="store_true", help="compare with the committed table")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = [judge(case) for case in cases]
    accepted = [row.case for row in rows if row.accepted]
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, (2, f"{folder}/store", accepted), nprocs=2, start_method="spawn")
    text = document(title, script, version, source, rows)
    path = DOCS / f"{title.lower()}-convolutions.md"
    if arguments.check:
        return int(path.read_text() != text)
    path.write_text(text)
    print(f"{len(accepted)} accepted, {len(rows) - len(accepted)} refused: {path}")
    return 0
