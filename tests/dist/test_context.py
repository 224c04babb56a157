"""Who a process is, and the collectives, alone and between processes."""

import pytest
import torch
from support.pool import Pool, RanksFailed

from gnnpar.dist import Context
from gnnpar.dist.context import check_device, place_device
from gnnpar.errors import InputError, RunError


def test_a_single_process_is_its_own_group():
    context = Context.single()
    t = torch.tensor([1.0, 2.0])
    assert (context.rank, context.world_size, context.is_first) == (0, 1, True)
    assert context.all_reduce(t, "a sum") is t and t.tolist() == [1.0, 2.0]
    assert context.broadcast(t, 0, "a copy") is t
    assert context.broadcast_object({"a": 1}, 0, "an object") == {"a": 1}
    assert context.gather_objects("mine", "objects") == ["mine"]
    context.barrier("waiting")
    context.close()
    context.close()


def use_collectives(context):
    rank = context.rank
    total = context.all_reduce(torch.tensor([float(rank), 1.0]), "a sum")
    copied = context.broadcast(torch.full((2,), float(rank)), 1, "a copy")
    shared = context.broadcast_object({"from": rank, "list": [1, 2]} if rank == 2 else None, 2, "an object")
    gathered = context.gather_objects((rank, "x" * rank), "objects")
    context.barrier("waiting")
    return total.tolist(), copied.tolist(), shared, gathered, context.is_first, context.backend


def test_collectives_between_three_processes(pool):
    for rank, found in enumerate(pool.run(use_collectives, 3, timeout_s=20)):
        total, copied, shared, gathered, is_first, backend = found
        assert total == [3.0, 3.0] and copied == [1.0, 1.0]
        assert shared == {"from": 2, "list": [1, 2]}
        assert gathered == [(0, ""), (1, "x"), (2, "xx")]
        assert is_first is (rank == 0) and backend == "gloo"


def leave_or_wait(context):
    if context.rank == 0:
        context.broadcast_object(None, 1, "sharing the plan")


def test_a_peer_that_has_left_is_a_run_error_that_names_rank_and_purpose(pool):
    with pytest.raises(RanksFailed) as caught:
        pool.run(leave_or_wait, 2, timeout_s=20)
    error = caught.value.errors[0]
    assert isinstance(error, RunError) and str(error).startswith(
        "rank 0: waiting for sharing the plan with rank 1: the connection failed ("
    )
    assert "\n" not in str(error)


def join_alone(context):
    """Rank 1 of 2, whose peer never comes."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    try:
        Context.join(1, 2, store=store, timeout_s=1)
    except RunError as error:
        return str(error)
    return "joined"


def test_peers_that_do_not_show_up_are_a_run_error_that_names_the_rank():
    own = Pool(size=1)  # torch counts the attempt: this process could not join the groups of others again
    (text,) = own.run(join_alone, 1)
    own.close()
    assert text.startswith("rank 1 of 2: the other ranks did not join within 1 s")


def test_devices_are_checked(monkeypatch):
    assert check_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="use cpu or cuda"):
        check_device("gpu0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="sees no GPU here; use device=cpu"):
        check_device("cuda")
    with pytest.raises(InputError, match="sees no GPU"):
        check_device("cuda:1")


def test_ranks_are_spread_over_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    placed = [place_device(torch.device("cuda"), rank) for rank in range(4)]
    assert [device.index for device in placed] == [0, 1, 0, 1]
    assert place_device(torch.device("cuda:1"), 0).index == 1
    assert place_device(torch.device("cpu"), 3).type == "cpu"
