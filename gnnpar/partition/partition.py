"""`Partition`: the part of every vertex, and the numbering in which each part is a contiguous range."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gnnpar.errors import InputError
from gnnpar.graph.graph import Graph

__all__ = ["Partition", "PartitionKey"]


@dataclass(frozen=True, kw_only=True)
class PartitionKey:
    """Everything that a partition is a function of; two equal keys are the same request.

    Attributes:
        graph_fingerprint: hash of the structure (`Graph.fingerprint`).
        method, num_parts, seed, inner_order, num_groups: as given to `partition_graph`.
        cost_fingerprint: hash of the vertex costs, "unit" where all are equal.
        version: of this package's algorithms, and of the library that cut the graph where there is one.
    """

    graph_fingerprint: str
    method: str
    num_parts: int
    seed: int
    inner_order: str
    cost_fingerprint: str
    version: str
    num_groups: int = 1

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits: names the cache file."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if self.num_groups == 1:
            del fields["num_groups"]  # files of before there were groups keep their fingerprints
        return hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class Partition:
    """Immutable cut of one graph's N vertices into C parts, none of them empty.

    Attributes:
        key: what was asked for, of which graph.
        order: `[N]` int64, old vertex ids in the new numbering, part by part.
        offsets: `[C + 1]` int64; part c is `order[offsets[c]:offsets[c + 1]]`.
    """

    key: PartitionKey
    order: Tensor
    offsets: Tensor

    @property
    def num_parts(self) -> int:
        return self.key.num_parts

    @property
    def num_nodes(self) -> int:
        return self.order.numel()

    @property
    def method(self) -> str:
        return self.key.method

    @property
    def seed(self) -> int:
        return self.key.seed

    @property
    def graph_fingerprint(self) -> str:
        return self.key.graph_fingerprint

    @property
    def version(self) -> str:
        return self.key.version

    @cached_property
    def assignment(self) -> Tensor:
        """`[N]` int32, the part of every vertex in the old numbering."""
        part = torch.repeat_interleave(torch.arange(self.num_parts, dtype=torch.int32), self.offsets.diff())
        return torch.empty_like(part).index_copy_(0, self.order, part)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of request and result (16 hex digits): histories and checkpoints are bound to it."""
        digest = hashlib.blake2b(self.key.fingerprint.encode(), digest_size=8)
        digest.update(self.order.numpy().tobytes())
        digest.update(self.offsets.numpy().tobytes())
        return digest.hexdigest()

    def check(self, graph: Graph) -> None:
        """Raises `InputError`, naming both fingerprints, if this is a partition of another graph."""
        if self.graph_fingerprint != graph.fingerprint or self.num_nodes != graph.num_nodes:
            raise InputError(
                "partition",
                [
                    f"made for graph {self.graph_fingerprint} with {self.num_nodes} vertices, but "
                    f"{graph.name} is {graph.fingerprint} with {graph.num_nodes}; partition this graph again"
                ],
            )
