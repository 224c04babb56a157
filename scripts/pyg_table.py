"""Which PyG convolutions gnnpar takes: probe each, train each in two stages, write docs/pyg-convolutions.md.

python scripts/pyg_table.py            # every class of torch_geometric.nn.conv, about a minute
python scripts/pyg_table.py --check    # exit code 1 where the committed table differs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch_geometric
import torch_geometric.nn.conv as conv
from torch import nn

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import BatchConfig, HistoryConfig, ParallelConfig, RunConfig, TrainConfig
from gnnpar.dist import Context
from gnnpar.errors import InputError
from gnnpar.graph import Graph
from gnnpar.model import LayerStack, probe
from gnnpar.train.trainer import Trainer

TABLE = Path(__file__).resolve().parent.parent / "docs" / "pyg-convolutions.md"
WIDTH = 8
NUM_CHUNKS, NUM_STEPS = 4, 6


def mlp(in_features: int, out_features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_features, 8), nn.ReLU(), nn.Linear(8, out_features))


@dataclass(frozen=True)
class Case:
    """One way to construct a convolution, as Python text, and what the graph must carry for it."""

    call: str
    edge_features: int = 0

    def make(self) -> nn.Module:
        names = {name: getattr(conv, name) for name in conv.__all__}
        # The text is that of this file's own table below; it is also what the document shows.
        module: nn.Module = eval(self.call, names | {"mlp": mlp, "tensor": torch.tensor})
        return module


SPECIAL: dict[str, list[Case]] = {
    "AGNNConv": [Case("AGNNConv()")],
    "ARMAConv": [Case("ARMAConv(8, 8)"), Case("ARMAConv(8, 8, num_layers=2)")],
    "APPNP": [Case("APPNP(K=1, alpha=0.1)"), Case("APPNP(K=10, alpha=0.1)")],
    "AntiSymmetricConv": [Case("AntiSymmetricConv(8)"), Case("AntiSymmetricConv(8, num_iters=2)")],
    "CGConv": [Case("CGConv(8)"), Case("CGConv(8, dim=3, batch_norm=True)", 3)],
    "ChebConv": [Case("ChebConv(8, 8, K=1)"), Case("ChebConv(8, 8, K=2)"), Case("ChebConv(8, 8, K=3)")],
    "DNAConv": [Case("DNAConv(8)")],
    "DirGNNConv": [Case("DirGNNConv(SAGEConv(8, 8))")],
    "DynamicEdgeConv": [Case("DynamicEdgeConv(mlp(16, 8), k=3)")],
    "EdgeConv": [Case("EdgeConv(mlp(16, 8))")],
    "FAConv": [Case("FAConv(8)")],
    "FastRGCNConv": [Case("FastRGCNConv(8, 8, num_relations=3)")],
    "FiLMConv": [Case("FiLMConv(8, 8)"), Case("FiLMConv(8, 8, num_relations=3)")],
    "FusedGATConv": [Case("FusedGATConv(8, 8, add_self_loops=False)")],
    "GATConv": [
        Case("GATConv(8, 4, heads=2, dropout=0.5)"),
        Case("GATConv(8, 8, edge_dim=3)", 3),
        Case("GATConv(8, 8, edge_dim=3, add_self_loops=False)", 3),
    ],
    "GATv2Conv": [
        Case("GATv2Conv(8, 4, heads=2, dropout=0.5)"),
        Case("GATv2Conv(8, 8, edge_dim=3)", 3),
    ],
    "GCN2Conv": [Case("GCN2Conv(8, alpha=0.1, theta=0.5, layer=1)")],
    "GCNConv": [
        Case("GCNConv(8, 8)"),
        Case("GCNConv(8, 8, improved=True)"),
        Case("GCNConv(8, 8, add_self_loops=False)"),
        Case("GCNConv(8, 8, cached=True)"),
        Case("GCNConv(-1, 8)"),
    ],
    "GENConv": [
        Case("GENConv(8, 8)"),
        Case("GENConv(8, 8, norm='layer', learn_t=True, msg_norm=True)"),
        Case("GENConv(8, 8, edge_dim=3)", 3),
    ],
    "GINConv": [Case("GINConv(mlp(8, 8), train_eps=True)")],
    "GINEConv": [Case("GINEConv(mlp(8, 8), edge_dim=3)", 3)],
    "GMMConv": [Case("GMMConv(8, 8, dim=3, kernel_size=2)", 3)],
    "GPSConv": [Case("GPSConv(8, SAGEConv(8, 8), heads=2)")],
    "GatedGraphConv": [Case("GatedGraphConv(8, num_layers=1)"), Case("GatedGraphConv(8, num_layers=3)")],
    "GeneralConv": [Case("GeneralConv(8, 8)"), Case("GeneralConv(8, 8, in_edge_channels=3)", 3)],
    "GravNetConv": [Case("GravNetConv(8, 8, space_dimensions=3, propagate_dimensions=4, k=2)")],
    "HANConv": [Case("HANConv(8, 8, metadata=(['v'], [('v', 'e', 'v')]))")],
    "HEATConv": [
        Case(
            "HEATConv(8, 8, num_node_types=2, num_edge_types=2, edge_type_emb_dim=4, edge_dim=3, "
            "edge_attr_emb_dim=4)",
            3,
        )
    ],
    "HGTConv": [Case("HGTConv(8, 8, metadata=(['v'], [('v', 'e', 'v')]))")],
    "HeteroConv": [Case("HeteroConv({('v', 'e', 'v'): SAGEConv(8, 8)})")],
    "LGConv": [Case("LGConv()")],
    "MixHopConv": [Case("MixHopConv(8, 8, powers=[0, 1])"), Case("MixHopConv(8, 8)")],
    "NNConv": [Case("NNConv(8, 8, nn=mlp(3, 64))", 3)],
    "PANConv": [Case("PANConv(8, 8, filter_size=1)")],
    "PDNConv": [Case("PDNConv(8, 8, edge_dim=3, hidden_channels=8)", 3)],
    "PNAConv": [
        Case("PNAConv(8, 8, aggregators=['mean', 'max'], scalers=['identity'], deg=tensor([0, 4, 8, 4]))"),
        Case(
            "PNAConv(8, 8, aggregators=['mean', 'std'], scalers=['amplification'], "
            "deg=tensor([0, 4, 8, 4]), edge_dim=3)",
            3,
        ),
    ],
    "PPFConv": [Case("PPFConv(mlp(12, 8))")],
    "PointGNNConv": [Case("PointGNNConv(mlp(8, 3), mlp(11, 8), mlp(8, 8))")],
    "PointNetConv": [Case("PointNetConv(mlp(11, 8))")],
    "RGATConv": [Case("RGATConv(8, 8, num_relations=3)")],
    "RGCNConv": [Case("RGCNConv(8, 8, num_relations=3)")],
    "ResGatedGraphConv": [Case("ResGatedGraphConv(8, 8)"), Case("ResGatedGraphConv(8, 8, edge_dim=3)", 3)],
    "SAGEConv": [
        Case("SAGEConv(8, 8)"),
        Case("SAGEConv(8, 8, aggr='max', normalize=True, project=True)"),
        Case("SAGEConv(8, 8, aggr='lstm')"),
    ],
    "SGConv": [Case("SGConv(8, 8, K=1)"), Case("SGConv(8, 8, K=2)")],
    "SSGConv": [Case("SSGConv(8, 8, alpha=0.1, K=1)"), Case("SSGConv(8, 8, alpha=0.1, K=2)")],
    "SignedConv": [Case("SignedConv(8, 8, first_aggr=True)")],
    "SimpleConv": [Case("SimpleConv(aggr='mean', combine_root='sum')")],
    "SplineConv": [Case("SplineConv(8, 8, dim=3, kernel_size=2)", 3)],
    "SuperGATConv": [Case("SuperGATConv(8, 4, heads=2, dropout=0.5)")],
    "TAGConv": [Case("TAGConv(8, 8, K=1)"), Case("TAGConv(8, 8)")],
    "TransformerConv": [
        Case("TransformerConv(8, 4, heads=2, dropout=0.5)"),
        Case("TransformerConv(8, 8, beta=True, edge_dim=3)", 3),
    ],
    "WLConv": [Case("WLConv()")],
    "WLConvContinuous": [Case("WLConvContinuous()")],
    "XConv": [Case("XConv(8, 8, dim=3, kernel_size=2)")],
    "CuGraphRGCNConv": [Case("CuGraphRGCNConv(8, 8, num_relations=3)")],
}
"""Classes that `Name(8, 8)` does not construct, or of which more than one variant is worth a line."""


@dataclass
class Row:
    case: Case
    accepted: bool
    note: str


def cases() -> list[Case]:
    names = sorted((name for name in conv.__all__ if name != "MessagePassing"), key=str.lower)
    return [case for name in names for case in SPECIAL.get(name, [Case(f"{name}(8, 8)")])]


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
    warnings.filterwarnings("ignore", category=UserWarning, module="torch_geometric")
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


def document(rows: list[Row]) -> str:
    accepted = [row for row in rows if row.accepted]
    refused = [row for row in rows if not row.accepted]
    lines = [
        "# PyG convolutions",
        "",
        f"Written by `python scripts/pyg_table.py` with PyG {torch_geometric.__version__}. Every class of",
        "`torch_geometric.nn.conv` was probed on a directed graph of 12 vertices, and every accepted one was",
        f"trained in two stages on {NUM_CHUNKS} chunks with histories. How a convolution runs on a part of",
        "the graph (bipartite, square, padded, counted) is explained in `gnnpar.model.adapters`.",
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare with the committed table, write nothing"
    )
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning, module="torch_geometric")
    rows = [judge(case) for case in cases()]
    with tempfile.TemporaryDirectory() as folder:
        accepted = [row.case for row in rows if row.accepted]
        mp.start_processes(train, (2, f"{folder}/store", accepted), nprocs=2, start_method="spawn")
    text = document(rows)
    if arguments.check:
        return int(TABLE.read_text() != text)
    TABLE.write_text(text)
    print(f"{len(accepted)} accepted, {len(rows) - len(accepted)} refused: {TABLE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
