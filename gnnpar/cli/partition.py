"""`gnnpar partition`: cut a graph into chunks, report how good the cut is, and keep it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gnnpar.config import compose
from gnnpar.errors import InputError

__all__ = ["main"]

USAGE = """usage: gnnpar partition [KEY=VALUE …] [out=FILE] [format=table|json]

Cuts the graph that `dataset=…` names into `batch.num_chunks` parts as `partition.*` says, and prints vertex,
edge, cost and training-vertex balance (max ÷ mean), cut edges, halo and replication factor. The result is
cached, so that `gnnpar train` with the same keys finds it; one written to `out` is used by
`gnnpar train … partition.path=FILE`. With `parallel.ways` as many groups of parts as the least common
multiple of these numbers are cut first, and the rows that ways read of each other are told, too.

  gnnpar partition dataset=digits batch.num_chunks=16 out=parts.npz
  gnnpar partition dataset=npz dataset.path=FILE batch.num_chunks=16 partition.method=ldg format=json
"""


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` and `RunError` for the caller to print."""
    if any(argument in ("-h", "--help", "help") for argument in argv):
        print(USAGE, end="")
        return 0
    own = {"out": "", "format": "table"}
    overrides = []
    for argument in argv:
        key, _, value = argument.partition("=")
        if key in own:
            own[key] = value
        else:
            overrides.append(argument)
    if own["format"] not in ("table", "json"):
        raise InputError("format", [f"unknown {own['format']!r}; choose table or json"])
    config = compose(overrides)

    from gnnpar import data
    from gnnpar.dist import Mesh
    from gnnpar.partition import degree_cost, report, save_partition
    from gnnpar.train.run import cut

    graph = data.load(config.dataset)
    partition = cut(config, graph)
    if own["out"]:
        save_partition(partition, Path(own["out"]))
    cost = degree_cost(graph, config.partition.cost_vertex, config.partition.cost_edge)
    quality = report(graph, partition, cost, max(Mesh.of(config).ways))
    if own["format"] == "json":
        json.dump(quality.to_json(), sys.stdout, indent=2)
        print()
    else:
        from rich.console import Console

        Console().print(quality.table())
    return 0
