"""Messages between two processes: what arrives, what is counted, what a missing one says."""

from dataclasses import replace

import torch
from support.pool import RanksFailed

from gnnpar.dist import Transport
from gnnpar.errors import RunError
from gnnpar.trace import Recorder

SHAPES = [(3, 4), (5,), (0, 7), (2, 3, 2)]


def tensors(base):
    return [torch.arange(torch.Size(s).numel()).reshape(s).double() + base for s in SHAPES]


def exchange(context):
    """Two messages each way, received in the other order, one of them not contiguous."""
    recorder = Recorder()
    transport = Transport(context, recorder)
    peer = 1 - context.rank
    row = [torch.arange(12.0).reshape(3, 4).t() + context.rank, torch.tensor([7], dtype=torch.int32)]
    sent = [
        transport.send(tensors(context.rank), peer, 0, "stage", "payload"),
        transport.send(row, peer, 64, "halo", "row"),
    ]
    second = transport.receive([torch.empty(4, 3), torch.empty(1, dtype=torch.int32)], peer, 64, "row")
    first = transport.receive([torch.empty(s).double() for s in SHAPES], peer, 0, "payload")
    arrived = transport.finish(second), transport.finish(first)
    for message in sent:
        transport.finish(message)
    return arrived, dict(recorder.bytes_sent), dict(recorder.messages_sent), recorder.seconds["wait"]


def test_tensors_arrive_by_tag_and_bytes_are_counted_exactly(pool):
    numbers = sum(torch.Size(s).numel() for s in SHAPES)
    for rank, (arrived, count, messages, waited) in enumerate(pool.run(exchange, 2, timeout_s=20)):
        peer = 1 - rank
        (row, integer), payload = arrived
        assert torch.equal(row, torch.arange(12.0).reshape(3, 4).t() + peer) and integer.item() == 7
        assert all(torch.equal(a, b) for a, b in zip(payload, tensors(peer), strict=True))
        assert count == {("stage", peer): 8 * numbers, ("halo", peer): 12 * 4 + 4}
        assert messages == {("stage", peer): 1, ("halo", peer): 1}
        assert waited > 0


def wait_for_nothing(context):
    """Rank 0 waits for a message that rank 1 never sends, while rank 1 is alive."""
    if context.rank == 1:
        context.store.wait(["given up"])
        return None
    transport = Transport(replace(context, timeout_s=0.5), Recorder())
    message = transport.receive([torch.empty(2)], 1, 0, "1RECV_F3 (chunk 5, rows 10 to 20)")
    try:
        transport.finish(message)
    except RunError as error:
        return str(error)
    finally:
        context.store.set("given up", "yes")
    return "arrived"


def test_an_overrun_deadline_names_rank_message_and_peer(pool):
    text, _ = pool.run(wait_for_nothing, 2, timeout_s=20)
    wanted = "rank 0: waiting for 1RECV_F3 (chunk 5, rows 10 to 20) with rank 1: no answer within 0.5 s"
    assert text == wanted


def wait_for_one_that_leaves(context):
    if context.rank == 1:
        return
    transport = Transport(context, Recorder())
    transport.finish(transport.receive([torch.empty(2)], 1, 0, "a payload"))


def test_a_peer_that_leaves_is_named_with_the_reason(pool):
    try:
        pool.run(wait_for_one_that_leaves, 2, timeout_s=20)
    except RanksFailed as failed:
        error = failed.errors[0]
    assert isinstance(error, RunError)
    assert str(error).startswith("rank 0: waiting for a payload with rank 1: the connection failed (")
    assert "\n" not in str(error)
