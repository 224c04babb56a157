"""Which DGL convolutions gnnpar takes: probe each, train each in two stages, write docs/dgl-convolutions.md.

python scripts/dgl_table.py            # the convolutions of dgl.nn, about a minute
python scripts/dgl_table.py --check    # exit code 1 where the committed table differs
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from conv_table import Case, write_table

from gnnpar.interop.dgl import import_dgl


def names() -> dict[str, Any]:
    module = import_dgl().nn.pytorch.conv
    return {name: value for name, value in vars(module).items() if inspect.isclass(value)}


def case(call: str, edge_features: int = 0) -> Case:
    return Case(call, names, edge_features)


SPECIAL: dict[str, list[Case]] = {
    "AGNNConv": [case("AGNNConv(allow_zero_in_degree=True)")],
    "APPNPConv": [case("APPNPConv(k=1, alpha=0.1)"), case("APPNPConv(k=10, alpha=0.1)")],
    "AtomicConv": [case("AtomicConv(tensor([1.0]), tensor([1.0]), tensor([1.0]))")],
    "CFConv": [case("CFConv(8, 3, 8, 8)", 3)],
    "ChebConv": [case("ChebConv(8, 8, k=1)"), case("ChebConv(8, 8, k=2)"), case("ChebConv(8, 8, k=3)")],
    "CuGraphRelGraphConv": [case("CuGraphRelGraphConv(8, 8, 3)")],
    "DGNConv": [case("DGNConv(8, 8, ['mean'], ['identity'], 2.5)")],
    "DenseChebConv": [case("DenseChebConv(8, 8, k=2)")],
    "DotGatConv": [case("DotGatConv(8, 4, num_heads=2, allow_zero_in_degree=True)")],
    "EGATConv": [case("EGATConv(8, 3, 8, 3, num_heads=2)", 3)],
    "EGNNConv": [case("EGNNConv(8, 8, 8)")],
    "EdgeConv": [case("EdgeConv(8, 8, allow_zero_in_degree=True)")],
    "EdgeGATConv": [case("EdgeGATConv(8, 3, 4, num_heads=2, allow_zero_in_degree=True)", 3)],
    "GATConv": [case("GATConv(8, 4, num_heads=2, attn_drop=0.5, allow_zero_in_degree=True)")],
    "GATv2Conv": [case("GATv2Conv(8, 4, num_heads=2, attn_drop=0.5, allow_zero_in_degree=True)")],
    "CuGraphGATConv": [case("CuGraphGATConv(8, 4, num_heads=2)")],
    "GCN2Conv": [case("GCN2Conv(8, layer=1, alpha=0.1, lambda_=0.5, allow_zero_in_degree=True)")],
    "GINConv": [case("GINConv(mlp(8, 8), learn_eps=True)")],
    "GINEConv": [case("GINEConv(mlp(8, 8))", 8)],
    "GMMConv": [case("GMMConv(8, 8, dim=3, n_kernels=2, allow_zero_in_degree=True)", 3)],
    "GatedGCNConv": [case("GatedGCNConv(8, 3, 8)", 3)],
    "GatedGraphConv": [
        case("GatedGraphConv(8, 8, n_steps=1, n_etypes=1)"),
        case("GatedGraphConv(8, 8, n_steps=3, n_etypes=1)"),
    ],
    "GraphConv": [
        case("GraphConv(8, 8, allow_zero_in_degree=True)"),
        case("GraphConv(8, 8, norm='right', allow_zero_in_degree=True)"),
    ],
    "GroupRevRes": [case("GroupRevRes(GINConv(nn.Linear(4, 4)), groups=2)")],
    "HGTConv": [case("HGTConv(8, 4, 2, num_ntypes=1, num_etypes=1)")],
    "NNConv": [case("NNConv(8, 8, mlp(3, 64), 'mean')", 3)],
    "PNAConv": [case("PNAConv(8, 8, ['mean', 'max'], ['identity'], 2.5)")],
    "RelGraphConv": [case("RelGraphConv(8, 8, 3)")],
    "SAGEConv": [
        case("SAGEConv(8, 8, 'mean')"),
        case("SAGEConv(8, 8, 'gcn')"),
        case("SAGEConv(8, 8, 'pool')"),
        case("SAGEConv(8, 8, 'lstm')"),
    ],
    "SGConv": [
        case("SGConv(8, 8, k=1, allow_zero_in_degree=True)"),
        case("SGConv(8, 8, k=2, allow_zero_in_degree=True)"),
    ],
    "TAGConv": [case("TAGConv(8, 8, k=1)"), case("TAGConv(8, 8, k=2)")],
    "TWIRLSConv": [case("TWIRLSConv(8, 8, 8, prop_step=1)"), case("TWIRLSConv(8, 8, 8, prop_step=2)")],
    "TWIRLSUnfoldingAndAttention": [case("TWIRLSUnfoldingAndAttention(8, 1.0, 1.0, prop_step=1)")],
}
"""Classes that `Name(8, 8)` does not construct, or of which more than one variant is worth a line."""


def cases() -> list[Case]:
    known = sorted((name for name in names() if name.endswith("Conv") or name in SPECIAL), key=str.lower)
    return [one for name in known for one in SPECIAL.get(name, [case(f"{name}(8, 8)")])]


if __name__ == "__main__":
    sys.exit(write_table(cases(), "DGL", "dgl_table.py", import_dgl().__version__, "dgl.nn.pytorch.conv"))
