"""Models of the oracles: every layer type, small, with all dropouts on."""

import torch

from gnnpar.config.schema import HistoryConfig, ModelConfig
from gnnpar.graph.features import SparseRows
from gnnpar.model import build_model

__all__ = ["LAYER_TYPES", "PULL", "PUSH", "build", "history", "model_config"]

PULL = ("gcn", "sage", "gin", "gcnii", "resgcn")
PUSH = ("gat", "gen")
LAYER_TYPES = PULL + PUSH


def model_config(name, num_layers=4, **keys):
    """`keys` are further keys of `ModelConfig`."""
    norm = "layer" if name in ("resgcn", "gen") else "none"
    keys = {"hidden": 6, "dropout": 0.3, "heads": 2, "attention_dropout": 0.2, "norm": norm} | keys
    return ModelConfig(name=name, num_layers=num_layers, **keys)


def build(name, graph, *, seed=0, **keys):
    """A float64 model for `graph`; `keys` as in `model_config`."""
    config = model_config(name, **keys)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(config, graph.num_features, graph.num_classes, isinstance(graph.x, SparseRows))
    return model.double()


def history(mode, *, period=2, gamma=1.0, warmup=1):
    return HistoryConfig(mode=mode, period=period, gamma=gamma, warmup_steps=warmup)
