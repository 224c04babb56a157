"""Keys of updates without a flush: what goes with what, and what is said where it does not."""

import pytest

from gnnpar.config import compose
from gnnpar.errors import InputError
from gnnpar.runtime import POLICIES


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (["system=gpipe", "weights.policy=stash"], "weights.policy: stash needs schedule.name=async_1f1b"),
        (["system=pipedream", "weights.policy=local"], "another policy: live, stash"),
        (["system=pipedream", "weights.policy=flush"], "schedule.name=async_1f1b has no flush"),
        (["system=ppll", "weights.sync_epochs=2"], "weights.sync_epochs: stages with losses of their own"),
        (["system=gpipe", "weights.sync_epochs=2"], "weights.sync_epochs: with weights.policy=flush"),
        (["system=pipemare", "memory.recompute=true"], "memory.recompute: pipemare goes backward with other"),
        (["system=pipedream", "batch.kind=chunks"], "history.gamma: 1 sends gradients to chunks before"),
        (
            ["system=pipedream", "batch.kind=chunks", "history.gamma=0", "history.mode=drop"],
            "history.mode: drop leaves out edges to chunks outside an update",
        ),
        (["system=pipedream", "train.grad_clip=1"], "train.grad_clip: the norm over all stages"),
        (["system=pipedream", "model.norm=batch"], "model.norm: batch statistics are merged"),
        (["system=pipedream", "parallel.ways=2"], "parallel.ways: gradients of several ways"),
        (["system=pipedream", "weights.head=mlp"], "weights.head: weights.policy=stash does not read it"),
        (["system=pipedream", "weights.horizon=3"], "leave it out, or use pipemare"),
        (["system=spectrain", "optimizer.momentum=0"], "weights.policy: spectrain predicts weights from"),
        (["system=spectrain", "optimizer.name=adam"], "set optimizer.momentum=0"),
        (
            ["system=pipedream_2bw", "batch.steps_per_epoch=16"],
            "double needs as many micro-batches an update",
        ),
        (["system=gpipe", "history.refresh_every=3"], "history.refresh_every: clusters read nothing"),
    ],
)
def test_what_does_not_go_together_is_named(keys, fault):
    with pytest.raises(InputError) as caught:
        compose(keys)
    assert any(fault in one for one in caught.value.faults), caught.value.faults


def test_the_policies_of_the_keys_are_those_that_run():
    for name, policy in POLICIES.items():
        if policy.detached:
            compose(["system=ppll", f"weights.policy={name}"])
        elif policy.distances:
            compose(["system=pipedream_2bw", f"weights.policy={name}", "weights.distance=exact"])
        else:
            compose(["system=pipedream_2bw", f"weights.policy={name}"])
        if policy.rereads:
            with pytest.raises(InputError, match="goes backward with other weights"):
                compose(["system=pipedream_2bw", f"weights.policy={name}", "memory.recompute=true"])
