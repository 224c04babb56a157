"""Tells PyG's modules apart without importing PyG."""

from __future__ import annotations

from torch import nn

__all__ = ["is_pyg_conv"]


def is_pyg_conv(module: nn.Module) -> bool:
    """True for PyG convolutions and for users' own `MessagePassing` classes."""
    return any(base.__module__.startswith("torch_geometric.nn.conv") for base in type(module).__mro__)
