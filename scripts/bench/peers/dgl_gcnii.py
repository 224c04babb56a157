"""GCNII of DGL's GCN2Conv, full batch in one process.

python -m scripts.bench.peers.dgl_gcnii GRAPH.npz
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gnnpar.interop.dgl import import_dgl
from scripts.bench.peers.peer import PeerGraph, arguments, measure

dgl = import_dgl()


class GCNII(nn.Module):
    """Linear, `layers` convolutions with shared weights, linear; dropout before each."""

    def __init__(self, num_features: int, num_classes: int, layers: int, hidden: int, dropout: float):
        from dgl.nn.pytorch import GCN2Conv

        super().__init__()
        self.first, self.last = nn.Linear(num_features, hidden), nn.Linear(hidden, num_classes)
        self.convs = nn.ModuleList(
            GCN2Conv(hidden, number, alpha=0.1, lambda_=0.5, bias=False) for number in range(1, layers + 1)
        )
        self.dropout = dropout

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = h0 = self.first(F.dropout(x, self.dropout)).relu()
        for conv in self.convs:
            h = conv(graph, F.dropout(h, self.dropout), h0).relu()
        return self.last(F.dropout(h, self.dropout))


def main() -> None:
    args = arguments().parse_args()

    def build(graph: PeerGraph) -> tuple[nn.Module, Callable[[], Tensor]]:
        num_nodes, num_features = graph.x.shape
        # int32, formats made ahead: DGL's fastest way
        adjacency = dgl.graph(tuple(graph.edge_index), num_nodes=num_nodes).add_self_loop().int()
        adjacency.create_formats_()
        model = GCNII(num_features, graph.num_classes, args.layers, args.hidden, args.dropout)
        return model, lambda: model(adjacency, graph.x)

    measure(args, build)


if __name__ == "__main__":
    main()
