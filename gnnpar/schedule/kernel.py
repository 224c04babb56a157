"""What the event loop reads and writes, and the survey of the codes that precedes it.

Like the loop, the survey is plain Python over lists, and the same function compiled by numba over arrays when
a schedule is large; so both use nothing but integers, floats and indexing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gnnpar.schedule.program import (
    BATCH_MASK,
    KIND_AT,
    KIND_MASK,
    PEER_AT,
    REPLICA_AT,
    REPLICA_MASK,
    STAGE_AT,
    STAGE_MASK,
)

__all__ = ["DUPLICATE", "MISPLACED", "OK", "RANGE", "SPLIT", "STUCK", "UNLINKED", "Plan", "State", "survey"]

OK, STUCK, RANGE, MISPLACED, SPLIT, DUPLICATE, UNLINKED = range(7)

PLANNED = -2.0  # the time of a forward that some program holds, before it is known

# The kinds as plain integers, for the compiler; a test compares them with action.Kind.
F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, REDUCE, STEP = range(10)  # noqa: E741


class Plan(NamedTuple):
    """What the loop reads. R replicas, S stages, E edges, M micro-batches, P ranks; flat arrays."""

    codes: Any  # all programs, rank after rank
    ptr: Any  # [P+1] first code of each rank
    sizes: Any  # R, S, E, M, P, lowered, rendezvous, full overlap, in order, in reverse, exact, U, detached
    rank_of: Any  # [R*S]
    in_ptr: Any  # [S+1] into in_edge
    in_edge: Any
    out_ptr: Any
    out_edge: Any
    edge_from: Any  # [E]
    edge_to: Any
    before: Any  # [M]
    after: Any
    reads_ptr: Any  # [M+1] into reads (exact mode)
    reads: Any
    readers_ptr: Any
    readers: Any
    duration: Any  # [10*R*S] by kind, replica and stage
    scale: Any  # [M]
    latency: Any  # [2*R*E] forward messages, then backward ones
    transfer: Any
    link: Any  # [2*R*E] the directed pair of ranks a message travels on


class State(NamedTuple):
    """What the loop writes. Times are negative until known."""

    start: Any  # [codes]
    end: Any
    done: Any  # [3*R*S*M] F, then B or I, then W
    arrived: Any  # [2*R*E*M] input of the consumer present
    sent: Any  # as arrived (lowered only): the sender posted, or with buffering the message is there
    received: Any  # as arrived: the receiver posted (rendezvous only)
    free: Any  # [P] when the rank ends its last action
    base: Any  # [P] when the rank started its last item, for the parts that overlap it
    pos: Any  # [P] index of the next code
    busy: Any  # [P]
    talking: Any  # [P] time in blocking communication
    live: Any  # [P]
    peak: Any  # [P]
    owner: Any  # [M]
    total: Any  # [R*S] forwards in the programs
    ended: Any  # [R*S] micro-batches whose backward is complete
    reduces: Any  # [R*S] REDUCE done
    steps: Any  # [R*S]
    expected: Any  # [S] REDUCE in the programs
    posted: Any  # [S] REDUCE posted
    reduced_at: Any  # [S]
    link_free: Any
    stack: Any  # [P]
    queued: Any  # [P]


def survey(p, st):  # type: ignore[no-untyped-def]
    """Counts what the programs hold. Returns (fault, rank, index) of the first code that cannot be meant."""
    R, S, M, P, lowered = p.sizes[0], p.sizes[1], p.sizes[3], p.sizes[4], p.sizes[5]
    for r in range(P):
        for i in range(p.ptr[r], p.ptr[r + 1]):
            v = p.codes[i]
            kind = (v >> KIND_AT) & KIND_MASK
            s = (v >> STAGE_AT) & STAGE_MASK
            rep = (v >> REPLICA_AT) & REPLICA_MASK
            m = v & BATCH_MASK
            if kind > STEP or s >= S or m >= M or rep >= R:
                return RANGE, r, i
            if p.rank_of[rep * S + s] != r:
                return MISPLACED, r, i
            if kind == F:
                if st.owner[m] >= 0 and st.owner[m] != rep:
                    return SPLIT, r, i
                if st.done[(rep * S + s) * M + m] == PLANNED:
                    return DUPLICATE, r, i
                st.done[(rep * S + s) * M + m] = PLANNED
                st.owner[m] = rep
                st.total[rep * S + s] += 1
            elif kind == REDUCE:
                st.expected[s] += 1
            elif SEND_F <= kind <= RECV_B:
                a = s
                b = ((v >> PEER_AT) & STAGE_MASK) - 1
                if kind in (RECV_F, SEND_B):
                    a, b = b, a
                if not lowered or a < 0 or b < 0 or a >= S or b >= S:
                    return UNLINKED, r, i
                found = False
                for x in range(p.out_ptr[a], p.out_ptr[a + 1]):
                    if p.edge_to[p.out_edge[x]] == b:
                        found = True
                if not found or p.rank_of[rep * S + a] == p.rank_of[rep * S + b]:
                    return UNLINKED, r, i
    return OK, 0, 0
