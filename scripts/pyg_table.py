"""Which PyG convolutions gnnpar takes: probe each, train each in two stages, write docs/pyg-convolutions.md.

python scripts/pyg_table.py            # every class of torch_geometric.nn.conv, about a minute
python scripts/pyg_table.py --check    # exit code 1 where the committed table differs
"""

from __future__ import annotations

import sys
from typing import Any

import torch_geometric
import torch_geometric.nn.conv as conv
from conv_table import Case, write_table


def names() -> dict[str, Any]:
    return {name: getattr(conv, name) for name in conv.__all__}


def case(call: str, edge_features: int = 0) -> Case:
    return Case(call, names, edge_features)


SPECIAL: dict[str, list[Case]] = {
    "AGNNConv": [case("AGNNConv()")],
    "ARMAConv": [case("ARMAConv(8, 8)"), case("ARMAConv(8, 8, num_layers=2)")],
    "APPNP": [case("APPNP(K=1, alpha=0.1)"), case("APPNP(K=10, alpha=0.1)")],
    "AntiSymmetricConv": [case("AntiSymmetricConv(8)"), case("AntiSymmetricConv(8, num_iters=2)")],
    "CGConv": [case("CGConv(8)"), case("CGConv(8, dim=3, batch_norm=True)", 3)],
    "ChebConv": [case("ChebConv(8, 8, K=1)"), case("ChebConv(8, 8, K=2)"), case("ChebConv(8, 8, K=3)")],
    "DNAConv": [case("DNAConv(8)")],
    "DirGNNConv": [case("DirGNNConv(SAGEConv(8, 8))")],
    "DynamicEdgeConv": [case("DynamicEdgeConv(mlp(16, 8), k=3)")],
    "EdgeConv": [case("EdgeConv(mlp(16, 8))")],
    "FAConv": [case("FAConv(8)")],
    "FastRGCNConv": [case("FastRGCNConv(8, 8, num_relations=3)")],
    "FiLMConv": [case("FiLMConv(8, 8)"), case("FiLMConv(8, 8, num_relations=3)")],
    "FusedGATConv": [case("FusedGATConv(8, 8, add_self_loops=False)")],
    "GATConv": [
        case("GATConv(8, 4, heads=2, dropout=0.5)"),
        case("GATConv(8, 8, edge_dim=3)", 3),
        case("GATConv(8, 8, edge_dim=3, add_self_loops=False)", 3),
    ],
    "GATv2Conv": [
        case("GATv2Conv(8, 4, heads=2, dropout=0.5)"),
        case("GATv2Conv(8, 8, edge_dim=3)", 3),
    ],
    "GCN2Conv": [case("GCN2Conv(8, alpha=0.1, theta=0.5, layer=1)")],
    "GCNConv": [
        case("GCNConv(8, 8)"),
        case("GCNConv(8, 8, improved=True)"),
        case("GCNConv(8, 8, add_self_loops=False)"),
        case("GCNConv(8, 8, cached=True)"),
        case("GCNConv(-1, 8)"),
    ],
    "GENConv": [
        case("GENConv(8, 8)"),
        case("GENConv(8, 8, norm='layer', learn_t=True, msg_norm=True)"),
        case("GENConv(8, 8, edge_dim=3)", 3),
    ],
    "GINConv": [case("GINConv(mlp(8, 8), train_eps=True)")],
    "GINEConv": [case("GINEConv(mlp(8, 8), edge_dim=3)", 3)],
    "GMMConv": [case("GMMConv(8, 8, dim=3, kernel_size=2)", 3)],
    "GPSConv": [case("GPSConv(8, SAGEConv(8, 8), heads=2)")],
    "GatedGraphConv": [case("GatedGraphConv(8, num_layers=1)"), case("GatedGraphConv(8, num_layers=3)")],
    "GeneralConv": [case("GeneralConv(8, 8)"), case("GeneralConv(8, 8, in_edge_channels=3)", 3)],
    "GravNetConv": [case("GravNetConv(8, 8, space_dimensions=3, propagate_dimensions=4, k=2)")],
    "HANConv": [case("HANConv(8, 8, metadata=(['v'], [('v', 'e', 'v')]))")],
    "HEATConv": [
        case(
            "HEATConv(8, 8, num_node_types=2, num_edge_types=2, edge_type_emb_dim=4, edge_dim=3, "
            "edge_attr_emb_dim=4)",
            3,
        )
    ],
    "HGTConv": [case("HGTConv(8, 8, metadata=(['v'], [('v', 'e', 'v')]))")],
    "HeteroConv": [case("HeteroConv({('v', 'e', 'v'): SAGEConv(8, 8)})")],
    "LGConv": [case("LGConv()")],
    "MixHopConv": [case("MixHopConv(8, 8, powers=[0, 1])"), case("MixHopConv(8, 8)")],
    "NNConv": [case("NNConv(8, 8, nn=mlp(3, 64))", 3)],
    "PANConv": [case("PANConv(8, 8, filter_size=1)")],
    "PDNConv": [case("PDNConv(8, 8, edge_dim=3, hidden_channels=8)", 3)],
    "PNAConv": [
        case("PNAConv(8, 8, aggregators=['mean', 'max'], scalers=['identity'], deg=tensor([0, 4, 8, 4]))"),
        case(
            "PNAConv(8, 8, aggregators=['mean', 'std'], scalers=['amplification'], "
            "deg=tensor([0, 4, 8, 4]), edge_dim=3)",
            3,
        ),
    ],
    "PPFConv": [case("PPFConv(mlp(12, 8))")],
    "PointGNNConv": [case("PointGNNConv(mlp(8, 3), mlp(11, 8), mlp(8, 8))")],
    "PointNetConv": [case("PointNetConv(mlp(11, 8))")],
    "RGATConv": [case("RGATConv(8, 8, num_relations=3)")],
    "RGCNConv": [case("RGCNConv(8, 8, num_relations=3)")],
    "ResGatedGraphConv": [case("ResGatedGraphConv(8, 8)"), case("ResGatedGraphConv(8, 8, edge_dim=3)", 3)],
    "SAGEConv": [
        case("SAGEConv(8, 8)"),
        case("SAGEConv(8, 8, aggr='max', normalize=True, project=True)"),
        case("SAGEConv(8, 8, aggr='lstm')"),
    ],
    "SGConv": [case("SGConv(8, 8, K=1)"), case("SGConv(8, 8, K=2)")],
    "SSGConv": [case("SSGConv(8, 8, alpha=0.1, K=1)"), case("SSGConv(8, 8, alpha=0.1, K=2)")],
    "SignedConv": [case("SignedConv(8, 8, first_aggr=True)")],
    "SimpleConv": [case("SimpleConv(aggr='mean', combine_root='sum')")],
    "SplineConv": [case("SplineConv(8, 8, dim=3, kernel_size=2)", 3)],
    "SuperGATConv": [case("SuperGATConv(8, 4, heads=2, dropout=0.5)")],
    "TAGConv": [case("TAGConv(8, 8, K=1)"), case("TAGConv(8, 8)")],
    "TransformerConv": [
        case("TransformerConv(8, 4, heads=2, dropout=0.5)"),
        case("TransformerConv(8, 8, beta=True, edge_dim=3)", 3),
    ],
    "WLConv": [case("WLConv()")],
    "WLConvContinuous": [case("WLConvContinuous()")],
    "XConv": [case("XConv(8, 8, dim=3, kernel_size=2)")],
    "CuGraphRGCNConv": [case("CuGraphRGCNConv(8, 8, num_relations=3)")],
}
"""Classes that `Name(8, 8)` does not construct, or of which more than one variant is worth a line."""


def cases() -> list[Case]:
    known = sorted((name for name in conv.__all__ if name != "MessagePassing"), key=str.lower)
    return [one for name in known for one in SPECIAL.get(name, [case(f"{name}(8, 8)")])]


if __name__ == "__main__":
    sys.exit(
        write_table(cases(), "PyG", "pyg_table.py", torch_geometric.__version__, "torch_geometric.nn.conv")
    )
