"""Models of the oracles: every layer type, small, with all dropouts on."""

import warnings

import torch
from torch import nn

from gnnpar.config.schema import HistoryConfig, ModelConfig
from gnnpar.graph.features import SparseRows
from gnnpar.model import (
    GAT,
    GCN,
    GCNII,
    GEN,
    Branch,
    Decoder,
    Encoder,
    GraphSAGE,
    LayerGraph,
    LayerStack,
    build_model,
)

__all__ = ["CUSTOM", "LAYER_TYPES", "PULL", "PUSH", "build", "history", "model_config"]

PULL = ("gcn", "sage", "gin", "gcnii", "resgcn")
PUSH = ("gat", "gen")
LAYER_TYPES = PULL + PUSH


def mixed(num_features, num_classes):
    """Layers of different kinds and widths; one widens, so that its map follows its cut; h0 is read late."""
    keys = {"dropout": 0.3}
    layers = [
        GCN(6, 9, **keys),
        GraphSAGE(9, 5, norm="rms", **keys),
        GAT(5, 3, heads=2, attention_dropout=0.2, **keys),
        GCNII(6, 1, **keys),
        GCNII(6, 2, **keys),
    ]
    return LayerStack(Encoder(num_features, 6, **keys), layers, Decoder(6, num_classes, **keys))


def with_edge_features(num_features, num_classes):
    """GEN that reads edge features, learns its temperature and normalises its messages."""
    keys = {"edge_features": 2, "learn_t": True, "message_norm": True, "dropout": 0.3}
    layers = [GEN(6, 6, **keys) for _ in range(4)]
    return LayerStack(Encoder(num_features, 6, dropout=0.3), layers, Decoder(6, num_classes))


def foreign_modules(num_features, num_classes):
    """PyG convolutions and plain torch modules: encoder, layers, decoder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyG's import calls torch.jit.script
        from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

    layers = [GCNConv(6, 6), nn.ReLU(), GATv2Conv(6, 3, heads=2), nn.LayerNorm(6), SAGEConv(6, 6)]
    return nn.Linear(num_features, 6), layers, nn.Linear(6, num_classes)


def foreign(num_features, num_classes):
    return LayerStack(*foreign_modules(num_features, num_classes))


def branching(num_features, num_classes):
    """Branches from the encoder and from the features; one goes on where another ends, all end in the tail.

    The last layer of `deep` could be fused with the first of `deeper`, were its output not read elsewhere.
    """
    keys = {"dropout": 0.3}
    branches = {
        "deep": Branch([GCNII(6, 1, **keys), GCNII(6, 2, **keys), GCNII(6, 3, **keys)]),
        "deeper": Branch([GCNII(6, 4, **keys), GCNII(6, 5, **keys)], inputs="deep"),
        "far": Branch(
            [nn.Linear(num_features, 6), GAT(6, 3, heads=2, attention_dropout=0.2, **keys)], inputs="features"
        ),
        "tail": Branch([GCN(24, 6, **keys)], inputs=("encoder", "deep", "deeper", "far"), join="cat"),
    }
    return LayerGraph(branches, encoder=Encoder(num_features, 6, **keys), decoder=Decoder(6, num_classes))


CUSTOM = {
    "mixed": (mixed, 5),
    "gen+edges": (with_edge_features, 4),
    "pyg": (foreign, 5),
    "branching": (branching, 8),
}
"""Name → what makes the model of F features and C classes, and its number of layers."""


def model_config(name, num_layers=4, **keys):
    """`keys` are further keys of `ModelConfig`."""
    if name in CUSTOM:
        return ModelConfig(name="custom", num_layers=CUSTOM[name][1])
    norm = "layer" if name in ("resgcn", "gen") else "none"
    keys = {"hidden": 6, "dropout": 0.3, "heads": 2, "attention_dropout": 0.2, "norm": norm} | keys
    return ModelConfig(name=name, num_layers=num_layers, **keys)


def build(name, graph, *, seed=0, **keys):
    """A float64 model for `graph`; `keys` as in `model_config`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name in CUSTOM:
            model = CUSTOM[name][0](graph.num_features, graph.num_classes).double()
            faults = model.check(graph)
            assert not faults, faults
            return model
        sparse = isinstance(graph.x, SparseRows)
        return build_model(model_config(name, **keys), graph.num_features, graph.num_classes, sparse).double()


def history(mode, *, period=2, gamma=1.0, warmup=1, **keys):
    return HistoryConfig(mode=mode, period=period, gamma=gamma, warmup_steps=warmup, **keys)
