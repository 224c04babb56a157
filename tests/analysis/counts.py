"""Graphs and models whose work can be counted by hand."""

import torch

from gnnpar.config.schema import ModelConfig
from gnnpar.graph import Graph

__all__ = ["config", "small_graph"]


def small_graph(*, weighted=False, features=7, classes=3):
    """Six vertices, nine directed edges; vertex 0 has four in-edges, which is the most."""
    edges = torch.tensor([[1, 2, 3, 4, 0, 1, 2, 5, 3], [0, 0, 0, 0, 1, 2, 3, 4, 5]])
    draw = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(
        edges,
        num_nodes=6,
        x=torch.randn(6, features, generator=draw),
        y=torch.tensor([0, 1, 2, 0, 1, -1]),
        train_mask=torch.tensor([True, True, True, False, False, True]),  # three of them labelled
        num_classes=classes,
        edge_weight=torch.rand(9, generator=draw) + 0.5 if weighted else None,
        name="small",
    )


def config(name, **keys):
    keys = {"num_layers": 3, "hidden": 8, "dropout": 0.5, "heads": 2, "attention_dropout": 0.0} | keys
    return ModelConfig(name=name, **keys)
