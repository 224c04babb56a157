"""Models with branches that several tests look at."""

import torch
from torch import nn

from gnnpar.model import GAT, GCN, GCNII, Branch, Encoder, GraphSAGE, LayerGraph

__all__ = ["P", "jumping", "towers"]

P = 0.3


def towers(join="cat", width=12):
    """Two towers with encoders of their own, and a tail."""
    torch.manual_seed(0)
    return LayerGraph(
        {
            "tail": Branch([GCN(width, 5, dropout=P)], inputs=("near", "far"), join=join),
            "near": Branch([nn.Linear(7, 6), GCN(6, 6, dropout=P)], inputs="features"),
            "far": Branch(
                [nn.Linear(7, 6), GAT(6, 3, heads=2, dropout=P, attention_dropout=0.2), GCN(6, 6, dropout=P)],
                inputs="features",
            ),
        },
        decoder=nn.Linear(5, 3),
    ).double()


def jumping():
    """Jumping knowledge by concatenation, the encoder's output included; GCNII reads it too."""
    torch.manual_seed(0)
    return LayerGraph(
        {
            "first": Branch([GCN(6, 6, dropout=P)]),
            "second": Branch([GCNII(6, 2, dropout=P)], inputs="first"),
            "third": Branch([GraphSAGE(6, 6, dropout=P)], inputs="second"),
            "tail": Branch([], inputs=("encoder", "first", "second", "third"), join="cat"),
        },
        encoder=Encoder(7, 6, dropout=P),
        decoder=nn.Linear(24, 3),
    ).double()
