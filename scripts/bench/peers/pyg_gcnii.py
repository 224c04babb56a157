"""GCNII of PyG's GCN2Conv, full batch in one process.

    python -m scripts.bench.peers.pyg_gcnii GRAPH.npz --adjacency csr

Adjacency normalised once, ahead of training, as PyG's own example does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCN2Conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from scripts.bench.peers.peer import PeerGraph, arguments, measure

warnings.filterwarnings("ignore", message="Sparse CSR tensor support")


class GCNII(nn.Module):
    """PyG's example: linear, `layers` convolutions with shared weights, linear; dropout before each."""

    def __init__(self, num_features: int, num_classes: int, layers: int, hidden: int, dropout: float):
        super().__init__()
        self.first, self.last = nn.Linear(num_features, hidden), nn.Linear(hidden, num_classes)
        self.convs = nn.ModuleList(
            GCN2Conv(hidden, alpha=0.1, theta=0.5, layer=number, normalize=False)
            for number in range(1, layers + 1)
        )
        self.dropout = dropout

    def forward(self, x: Tensor, adjacency: Tensor, edge_weight: Tensor | None) -> Tensor:
        h = h0 = self.first(F.dropout(x, self.dropout)).relu()
        for conv in self.convs:
            h = conv(F.dropout(h, self.dropout), h0, adjacency, edge_weight).relu()
        return self.last(F.dropout(h, self.dropout))


def main() -> None:
    parser = arguments()
    parser.add_argument("--adjacency", choices=("csr", "edge_index"), default="csr")
    args = parser.parse_args()

    def build(graph: PeerGraph) -> tuple[nn.Module, Callable[[], Tensor]]:
        num_nodes, num_features = graph.x.shape
        adjacency, edge_weight = gcn_norm(graph.edge_index, num_nodes=num_nodes)
        if args.adjacency == "csr":
            indices, size = adjacency.flip(0), (num_nodes, num_nodes)
            adjacency = torch.sparse_coo_tensor(indices, edge_weight, size).coalesce().to_sparse_csr()
            edge_weight = None
        model = GCNII(num_features, graph.num_classes, args.layers, args.hidden, args.dropout)
        return model, lambda: model(graph.x, adjacency, edge_weight)

    measure(args, build)


if __name__ == "__main__":
    main()
