"""Clocks of several hosts, on one: a rank whose clock is wrong finds out by how much."""

import time

import pytest

from gnnpar.dist import Transport
from gnnpar.dist.clock import clock_offset
from gnnpar.trace import Recorder


def offsets(context):
    """For the pool: with the clock of the host, and with clocks that are hours apart."""
    transport = Transport(context, Recorder())
    apart = clock_offset(context, transport, lambda: time.perf_counter() - 3600.0 * context.rank)
    return clock_offset(context, transport), apart


def test_ranks_of_one_host_share_a_clock_and_others_ask_for_it(pool):
    found = pool.run(offsets, 3, timeout_s=60)
    assert [same for same, _ in found] == [0.0] * 3
    for rank, (_, apart) in enumerate(found):
        assert apart == pytest.approx(3600.0 * rank, abs=1.0)
