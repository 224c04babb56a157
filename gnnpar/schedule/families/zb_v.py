"""ZB-V."""

from __future__ import annotations

from gnnpar.schedule.action import Kind
from gnnpar.schedule.families._assemble import assemble
from gnnpar.schedule.families._family import Family
from gnnpar.schedule.program import code
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "zb_v"]


def zb_v(num_stages: int, num_micro_batches: int) -> Schedule:
    """Two stages a rank in a V, backward split: no bubble where tF = tI = tW, in 1F1B's memory.

    Two stages, four micro-batches, every action one unit of time::

        rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2
        rank 1  .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3

        rank 0  0I3 0W3 .
        rank 1  1W2 2W3 1W3

    2p stages over p = S ranks, stage 2p−1−r beside stage r, so that the V turns on the last rank without a
    message. The order is made for tF = tI = tW and M ≥ 2p−1; fewer micro-batches leave gaps. Its peak has no
    published value in micro-batches here: 2p half-size chunks is the paper's 1F1B-equal memory.

    Paper: Qi et al., *Pipeline Parallelism with Controllable Memory* (2024).
    """
    orders = [_order(rank, num_stages, num_micro_batches) for rank in range(num_stages)]
    placement = [[*range(num_stages), *reversed(range(num_stages))]]
    return assemble("zb_v", 2 * num_stages, num_micro_batches, orders, placement=placement)


def _order(rank: int, num_ranks: int, num_micro_batches: int) -> list[int]:
    # The pattern needs 2p−1 micro-batches; what is beyond the real ones is left out at the end.
    total = max(num_micro_batches, 2 * num_ranks - 1)
    stages = (rank, 2 * num_ranks - 1 - rank)
    done = {(kind, chunk): 0 for kind in (Kind.F, Kind.I, Kind.W) for chunk in (0, 1)}
    order: list[tuple[Kind, int, int]] = []

    def act(*pattern: tuple[Kind, int]) -> None:
        for kind, chunk in pattern:
            if done[kind, chunk] < total:
                order.append((kind, chunk, done[kind, chunk]))
                done[kind, chunk] += 1

    inner = num_ranks - rank
    for _ in range(2 * inner - 1):
        act((Kind.F, 0))
    for _ in range(rank):
        act((Kind.F, 1), (Kind.F, 0))
    for _ in range(inner):
        act((Kind.F, 1), (Kind.I, 1), (Kind.W, 1))
    while done[Kind.F, 1] < total:
        act((Kind.F, 0), (Kind.I, 0), (Kind.W, 0), (Kind.F, 1), (Kind.I, 1), (Kind.W, 1))
    for _ in range(rank):
        act((Kind.I, 0), (Kind.I, 1))
    for _ in range(inner):
        act((Kind.I, 0), (Kind.W, 0))
    for chunk in (1, 0):
        while done[Kind.W, chunk] < total:
            act((Kind.W, chunk))
    return [code(kind, stages[chunk], batch) for kind, chunk, batch in order if batch < num_micro_batches]


FAMILY = Family(
    zb_v,
    paper="Qi et al., 2024",
    summary="a V of two stages a rank and split backwards: no bubble in 1F1B's memory",
    example=(2, 4),
)
