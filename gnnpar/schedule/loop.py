"""The event loop of the simulator: one pass over integer codes that times, counts and validates."""

from __future__ import annotations

from gnnpar.schedule.kernel import (
    DUPLICATE,
    OK,
    RECV_B,
    RECV_F,
    REDUCE,
    SEND_B,
    SEND_F,
    STEP,
    STUCK,
    B,
    F,
    I,
    W,
)
from gnnpar.schedule.program import (
    BATCH_MASK,
    JOIN,
    KIND_AT,
    KIND_MASK,
    MORE,
    PEER_AT,
    REPLICA_AT,
    REPLICA_MASK,
    STAGE_AT,
    STAGE_MASK,
)

__all__ = ["advance"]


def advance(p, st):  # type: ignore[no-untyped-def]
    """Runs every program as far as it gets. Returns (fault, rank, index of the code)."""
    R, S, E, M, P = p.sizes[0], p.sizes[1], p.sizes[2], p.sizes[3], p.sizes[4]
    lowered, rendezvous, full = p.sizes[5], p.sizes[6], p.sizes[7]
    in_order, in_reverse, exact = p.sizes[8], p.sizes[9], p.sizes[10]
    updates, detached = p.sizes[11], p.sizes[12]
    RSM, REM = R * S * M, R * E * M
    top = 0
    for r in range(P - 1, -1, -1):
        st.stack[top] = r
        st.queued[r] = 1
        top += 1
    while top > 0:
        top -= 1
        r = st.stack[top]
        st.queued[r] = 0
        i = st.pos[r]
        stop = p.ptr[r + 1]
        while i < stop:
            j = i + 1
            while p.codes[j - 1] & MORE:
                j += 1
            v = p.codes[i]
            kind = (v >> KIND_AT) & KIND_MASK
            s = (v >> STAGE_AT) & STAGE_MASK
            rep = (v >> REPLICA_AT) & REPLICA_MASK
            here = rep * S + s
            talk = SEND_F <= kind <= RECV_B
            joined = (v & JOIN) != 0 and (full or talk)
            floor = st.base[r] if joined else st.free[r]
            ready = floor
            blocked = False
            length = 0.0
            # 1. Is everything there that this action needs, and since when?
            for k in range(i, j):
                m = p.codes[k] & BATCH_MASK
                row = here * M + m
                if kind == F:
                    if st.done[row] >= 0:
                        return DUPLICATE, r, k
                    length += p.duration[here] * p.scale[m]
                    for x in range(p.in_ptr[s], p.in_ptr[s + 1]):
                        q = (rep * E + p.in_edge[x]) * M
                        if exact:
                            for y in range(p.reads_ptr[m], p.reads_ptr[m + 1]):
                                t = st.arrived[q + p.reads[y]]
                                if t < 0:
                                    blocked = True
                                ready = max(ready, t)
                        else:
                            t = st.arrived[q + m]
                            if t < 0:
                                blocked = True
                            ready = max(ready, t)
                    if in_order and p.before[m] >= 0:
                        t = st.done[here * M + p.before[m]]
                        if t < 0:
                            blocked = True
                        ready = max(ready, t)
                elif kind in (B, I):
                    if st.done[RSM + row] >= 0:
                        return DUPLICATE, r, k
                    length += p.duration[kind * R * S + here] * p.scale[m]
                    t = st.done[row]
                    if t < 0:
                        blocked = True
                    ready = max(ready, t)
                    for x in range(p.out_ptr[s], p.out_ptr[s] if detached else p.out_ptr[s + 1]):
                        q = REM + (rep * E + p.out_edge[x]) * M
                        if exact:
                            for y in range(p.readers_ptr[m], p.readers_ptr[m + 1]):
                                t = st.arrived[q + p.readers[y]]
                                if t < 0:
                                    blocked = True
                                ready = max(ready, t)
                        else:
                            t = st.arrived[q + m]
                            if t < 0:
                                blocked = True
                            ready = max(ready, t)
                    if in_reverse and p.after[m] >= 0:
                        t = st.done[RSM + here * M + p.after[m]]
                        if t < 0:
                            blocked = True
                        ready = max(ready, t)
                elif kind == W:
                    if st.done[2 * RSM + row] >= 0:
                        return DUPLICATE, r, k
                    length += p.duration[W * R * S + here] * p.scale[m]
                    t = st.done[RSM + row]
                    if t < 0:
                        blocked = True
                    ready = max(ready, t)
                elif talk:
                    sends = kind in (SEND_F, SEND_B)
                    back = 1 if kind in (SEND_B, RECV_B) else 0
                    if sends:
                        if st.done[back * RSM + row] < 0:
                            blocked = True
                            continue
                        ready = max(ready, st.done[back * RSM + row])
                    # A message that overlaps others (an exchange) is posted together with all of them.
                    z = k
                    while z < stop and (z == k or (rendezvous and p.codes[z] & JOIN)):
                        u = p.codes[z]
                        other = (u >> KIND_AT) & KIND_MASK
                        if other < SEND_F or other > RECV_B:
                            break
                        a = (u >> STAGE_AT) & STAGE_MASK
                        b = ((u >> PEER_AT) & STAGE_MASK) - 1
                        if other in (RECV_F, SEND_B):
                            a, b = b, a
                        e = 0
                        for x in range(p.out_ptr[a], p.out_ptr[a + 1]):
                            if p.edge_to[p.out_edge[x]] == b:
                                e = p.out_edge[x]
                        away = 1 if other in (SEND_B, RECV_B) else 0
                        c = (away * R + ((u >> REPLICA_AT) & REPLICA_MASK)) * E + e
                        w = c * M + (u & BATCH_MASK)
                        out = other in (SEND_F, SEND_B)
                        far = b if out != (away == 1) else a
                        peer = p.rank_of[((u >> REPLICA_AT) & REPLICA_MASK) * S + far]
                        if rendezvous:
                            if (out and st.sent[w] < 0) or (not out and st.received[w] < 0):
                                if out:
                                    st.sent[w] = ready
                                else:
                                    st.received[w] = floor
                                if not st.queued[peer]:
                                    st.stack[top] = peer
                                    st.queued[peer] = 1
                                    top += 1
                            if z == k:
                                if st.sent[w] < 0 or st.received[w] < 0:
                                    blocked = True
                                else:
                                    ready = max(ready, st.sent[w], st.received[w])
                                    length = p.latency[c] + p.transfer[c] * p.scale[u & BATCH_MASK]
                                    if not out:
                                        st.arrived[w] = ready + length
                        elif out:
                            if st.sent[w] >= 0:
                                return DUPLICATE, r, k
                            begun = max(ready, st.link_free[p.link[c]])
                            begun += p.transfer[c] * p.scale[u & BATCH_MASK]
                            st.link_free[p.link[c]] = begun
                            st.sent[w] = begun + p.latency[c]
                            if not st.queued[peer]:
                                st.stack[top] = peer
                                st.queued[peer] = 1
                                top += 1
                        else:
                            if st.arrived[w] >= 0:
                                return DUPLICATE, r, k
                            if st.sent[w] < 0:
                                blocked = True
                            else:
                                ready = max(ready, st.sent[w])
                                st.arrived[w] = ready
                        z += 1
                elif kind == REDUCE:
                    if st.reduces[here]:
                        return DUPLICATE, r, k
                    blocked = st.ended[here] < st.total[here]
                else:
                    if st.steps[here] == updates:
                        return DUPLICATE, r, k
                    due = (st.steps[here] + 1) * st.total[here]
                    blocked = st.ended[here] * updates < due or st.posted[s] < st.expected[s]
                    if st.expected[s]:
                        ready = max(ready, st.reduced_at[s])
                    length = p.duration[STEP * R * S + here]
            if blocked:
                break
            # 2. Run it, and tell whoever waits for it.
            finish = ready + length
            if not joined:
                st.base[r] = st.free[r]
            spent = finish - max(ready, st.free[r]) if joined else length
            if spent > 0:
                if talk:
                    st.talking[r] += spent
                else:
                    st.busy[r] += spent
            st.free[r] = max(st.free[r], finish)
            for k in range(i, j):
                m = p.codes[k] & BATCH_MASK
                row = here * M + m
                st.start[k] = ready
                st.end[k] = finish
                if kind in (F, B, I):
                    back = 0 if kind == F else 1
                    st.done[back * RSM + row] = finish
                    if kind == F:
                        st.live[r] += 1
                        st.peak[r] = max(st.peak[r], st.live[r])
                    lo = p.out_ptr[s] if kind == F else p.in_ptr[s]
                    hi = p.out_ptr[s + 1] if kind == F else p.in_ptr[s + 1]
                    for x in range(lo, hi):
                        e = p.out_edge[x] if kind == F else p.in_edge[x]
                        peer = p.rank_of[rep * S + (p.edge_to[e] if kind == F else p.edge_from[e])]
                        c = (back * R + rep) * E + e
                        if peer == r:
                            st.arrived[c * M + m] = finish
                        elif not lowered:
                            begun = max(finish, st.link_free[p.link[c]]) + p.transfer[c] * p.scale[m]
                            st.link_free[p.link[c]] = begun
                            st.arrived[c * M + m] = begun + p.latency[c]
                            if not st.queued[peer]:
                                st.stack[top] = peer
                                st.queued[peer] = 1
                                top += 1
                if kind in (B, W):
                    st.done[2 * RSM + row] = finish
                    st.ended[here] += 1
                    st.live[r] -= 1
            if kind == REDUCE:
                st.reduces[here] += 1
                st.posted[s] += 1
                st.reduced_at[s] = max(st.reduced_at[s], ready)
                if st.posted[s] == st.expected[s]:
                    st.reduced_at[s] += p.duration[REDUCE * R * S + here]
                    for x in range(R):
                        peer = p.rank_of[x * S + s]
                        if peer != r and not st.queued[peer]:
                            st.stack[top] = peer
                            st.queued[peer] = 1
                            top += 1
            elif kind == STEP:
                st.steps[here] += 1
            i = j
            st.pos[r] = i
    for r in range(P):
        if st.pos[r] < p.ptr[r + 1]:
            return STUCK, r, st.pos[r]
    return OK, 0, 0
