"""GraphPipe over a graph of stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble, require
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "graphpipe"]


def graphpipe(
    num_stages: int, num_micro_batches: int, *, edges: Sequence[tuple[int, int]] | None = None
) -> Schedule:
    """1F1B over a directed acyclic graph of stages: independent branches run at the same time.

    Five stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 2  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        rank 3  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
        rank 4  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .

    A stage warms up with as many forwards as its longest path to the sink has edges. With D stages on the
    longest path: makespan (M+D−1)(tF+tB), idle per rank (D−1)(tF+tB), at most as many micro-batches in
    flight as the longest path to the sink has stages. A chain is 1F1B.

    Args:
        num_stages: S, one rank each, numbered so that edges ascend.
        edges: pairs of stages; default: two branches of S−1 stages in all, joined by the last stage.

    Paper: Jeon et al., *GraphPipe* (ASPLOS 2025).
    """
    if edges is None:
        edges = _two_branches(num_stages)
    require(
        "graphpipe",
        *(
            (0 <= source < target < num_stages, f"edges: {source} → {target} must ascend below {num_stages}")
            for source, target in edges
        ),
    )
    depth = [0] * num_stages
    for source, target in sorted(edges, reverse=True):
        depth[source] = max(depth[source], depth[target] + 1)
    orders = []
    for stage in range(num_stages):
        warm = min(depth[stage], num_micro_batches - 1)
        forwards = [code(Kind.F, stage, batch) for batch in range(num_micro_batches)]
        backwards = [code(Kind.B, stage, batch) for batch in range(num_micro_batches)]
        steady = chain.from_iterable(zip(forwards[warm:], backwards, strict=False))
        orders.append([*forwards[:warm], *steady, *backwards[num_micro_batches - warm :]])
    return assemble("graphpipe", num_stages, num_micro_batches, orders, edges=edges)


def _two_branches(num_stages: int) -> list[tuple[int, int]]:
    join, half = num_stages - 1, num_stages // 2
    branches = (range(half), range(half, join))
    return [edge for branch in branches if branch for edge in pairwise([*branch, join])]


FAMILY = Family(
    graphpipe,
    paper="Jeon et al., ASPLOS 2025",
    summary="1F1B over a graph of stages: as deep as its longest path only",
    example=(5, 4),
)
