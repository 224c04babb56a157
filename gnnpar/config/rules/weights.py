"""Rules of updates without a flush."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["weight_faults"]


_ORDERS = {"local": "local_learning", "flush": None}
"""Policy of weights → the schedule that it is for; those not named here: async_1f1b; None: all others."""

_CHOICES = {
    "local_learning": "local",
    "async_1f1b": "live, stash, vertical, double, spectrain, xpipe, pipeoptim, pipemare",
}
"""Schedule → its policies."""

_PREDICTING = ("spectrain", "xpipe", "pipeoptim")
_REREADING = ("live", *_PREDICTING, "pipemare")

_OF_POLICIES = {
    "weights.head": (("local",), "linear"),
    "weights.decay": (("pipemare",), 0.135),
    "weights.horizon": (("pipemare",), 0),
    "weights.distance": (_PREDICTING, "paper"),
}
"""Key → the policies that read it, and its default."""


def weight_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Which policies go with which order, and what cannot be done without a flush."""
    policy, name = v["weights.policy"], v["schedule.name"]
    keys = ("weights.policy", "schedule.name")
    order = _ORDERS.get(policy, "async_1f1b")
    for key, (readers, default) in _OF_POLICIES.items():
        if policy not in readers and v[key] != default:
            text = (
                f"{key}: weights.policy={policy} does not read it; leave it out, or use "
                f"{' or '.join(readers)}"
            )
            yield ((key, "weights.policy"), text)
    if order is not None and name != order:
        yield (
            keys,
            f"weights.policy: {policy} needs schedule.name={order}, not {name}; set it, or use another "
            f"policy: {_CHOICES.get(name, 'flush')}",
        )
    if order is None:
        if name == "local_learning" or (name == "async_1f1b" and v["batch.steps_per_epoch"] > 1):
            choice = "local" if name == "local_learning" else "stash, or another policy,"
            yield (keys, f"weights.policy: schedule.name={name} has no flush; say {choice} in its place")
        if v["weights.sync_epochs"]:
            text = "weights.sync_epochs: with weights.policy=flush every epoch is synchronous; leave it out"
            yield (("weights.sync_epochs", "weights.policy"), text)
        return
    if policy == "local" and v["weights.sync_epochs"]:
        text = "weights.sync_epochs: stages with losses of their own wait for no other; leave it out"
        yield (("weights.sync_epochs", "weights.policy"), text)
    if policy in _REREADING and v["memory.recompute"]:
        yield (
            ("memory.recompute", "weights.policy"),
            f"memory.recompute: {policy} goes backward with other weights than forward, which activations "
            "computed again would then have, too; leave it out, or use weights.policy=stash",
        )
    if v["batch.kind"] == "chunks" and v["history.mode"] == "drop":
        yield (
            ("history.mode", "batch.kind", "weights.policy"),
            "history.mode: drop leaves out edges to chunks outside an update, but without a flush the "
            "updates of an epoch read each other; use history.mode=latest, or batch.kind=clusters",
        )
    size = v["batch.num_chunks"] // (v["batch.joined"] * v["batch.steps_per_epoch"])
    if policy == "double" and size < v["parallel.stages"]:
        yield (
            ("weights.policy", "batch.steps_per_epoch", "batch.num_chunks", "parallel.stages"),
            f"weights.policy: double needs as many micro-batches an update as stages, but there are {size} "
            f"(batch.num_chunks={v['batch.num_chunks']}, batch.steps_per_epoch={v['batch.steps_per_epoch']}) "
            f"for parallel.stages={v['parallel.stages']}; use fewer steps, more chunks, or stash",
        )
    if v["train.grad_clip"] is not None:
        yield (
            ("train.grad_clip", "weights.policy"),
            "train.grad_clip: the norm over all stages is known after a flush only; leave it out, or use "
            "weights.policy=flush",
        )
    if v["model.norm"] == "batch":
        yield (
            ("model.norm", "weights.policy"),
            "model.norm: batch statistics are merged when a step ends, and without a flush none does; use "
            "layer",
        )
    if v["batch.kind"] not in ("chunks", "clusters"):
        yield (
            ("batch.kind", "weights.policy"),
            f"batch.kind: without a flush a step is an epoch, and all its mini-batches ({v['batch.kind']}) "
            "would be drawn before it; use batch.kind=clusters, or weights.policy=flush",
        )
    if v["parallel.replicas"] > 1:
        yield (
            ("parallel.replicas", "weights.policy"),
            "parallel.replicas: gradients of replicas are summed at a flush; use parallel.replicas=1, or "
            "weights.policy=flush",
        )
    if v["batch.kind"] == "chunks" and v["history.gamma"]:
        yield (
            ("history.gamma", "batch.kind", "weights.policy"),
            f"history.gamma: {v['history.gamma']:g} sends gradients to chunks before, whose update is made; "
            "use history.gamma=0, or batch.kind=clusters",
        )
    if v["optimizer.name"] == "sgd" and not v["optimizer.momentum"] and policy in _PREDICTING:
        yield (
            ("weights.policy", "optimizer.name", "optimizer.momentum"),
            f"weights.policy: {policy} predicts weights from the optimizer's momentum, and this one has "
            "none; set optimizer.momentum, or optimizer.name=adam",
        )
    ways = v["parallel.ways"]
    if (ways if isinstance(ways, int) else max(ways)) > 1:
        yield (
            ("parallel.ways", "weights.policy"),
            "parallel.ways: gradients of several ways are summed at a flush; use parallel.ways=1, or "
            "weights.policy=flush",
        )
