"""What the peers share: reading a graph as their users do, the training step, the line of JSON."""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PeerGraph", "arguments", "measure"]


@dataclass(frozen=True)
class PeerGraph:
    """A graph in memory: edge_index `[2, E]` int64, both directions, no loops; x `[N, F]` dense."""

    edge_index: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    num_classes: int

    @classmethod
    def read(cls, path: str) -> PeerGraph:
        """Read an npz file and symmetrise it. Without a split, 60% of the vertices are for training."""
        with np.load(path, allow_pickle=False) as arrays:
            num_nodes = int(arrays["num_nodes"])
            source, target = arrays["edge_index"].astype(np.int64)
            keys = np.unique(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
            edges = np.stack([keys // num_nodes, keys % num_nodes])
            edges = edges[:, edges[0] != edges[1]]
            if "x" in arrays:
                x = torch.from_numpy(arrays["x"].astype(np.float32))
            else:
                x = torch.zeros(*(int(n) for n in arrays["x_shape"]))
                row = np.repeat(np.arange(num_nodes), np.diff(arrays["x_indptr"]))
                values = torch.from_numpy(arrays["x_data"].astype(np.float32))
                x[torch.from_numpy(row), torch.from_numpy(arrays["x_indices"].astype(np.int64))] = values
            y = torch.from_numpy(arrays["y"].astype(np.int64))
            if "train_mask" in arrays:
                mask = torch.from_numpy(arrays["train_mask"].astype(bool))
            else:
                mask = torch.rand(num_nodes, generator=torch.Generator().manual_seed(0)) < 0.6
        return cls(torch.from_numpy(edges), x, y, mask, int(y.max()) + 1)


def arguments() -> argparse.ArgumentParser:
    """The command line of every peer; a peer may add its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("npz")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def measure(
    args: argparse.Namespace, build: Callable[[PeerGraph], tuple[nn.Module, Callable[[], Tensor]]]
) -> None:
    """Train `args.epochs` epochs and print seconds of every step, last loss and peak memory as JSON.

    Args:
        build: from a graph, the model and its forward pass `() -> logits [N, C]`.
    """
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    libraries = _peak_memory()
    graph = PeerGraph.read(args.npz)
    model, forward = build(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    y = graph.y[graph.train_mask]
    seconds = []
    model.train()
    for _ in range(args.epochs):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(forward()[graph.train_mask], y)
        loss.backward()
        optimizer.step()
        value = loss.item()
        seconds.append(time.perf_counter() - start)
    result = {"seconds": seconds, "loss": value, "peak_memory_bytes": [_peak_memory()]}
    print(json.dumps({**result, "library_memory_bytes": libraries}))


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
