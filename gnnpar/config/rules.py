"""Rules that tie several keys together, checked before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gnnpar.config.halo_rules import halo_faults

__all__ = ["cross_faults"]


def cross_faults(values: Mapping[str, Any], faulty: Collection[str] = ()) -> list[str]:
    """Faults of the values by dotted key, leaving out rules that read a key already known to be `faulty`."""
    return [text for keys, text in _broken(values) if not set(keys) & set(faulty)]


def _broken(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    stages, layers, split = v["parallel.stages"], v["model.num_layers"], v["parallel.layers_per_stage"]
    if stages > layers:
        yield (
            ("parallel.stages", "model.num_layers"),
            f"parallel.stages: {stages} stages need at least as many layers, but model.num_layers={layers}; "
            f"use parallel.stages={layers} or fewer",
        )
    # Schedules may put several stages on a rank: how many is known where the schedule is built.
    if split is not None and len(split) % stages:
        yield (
            ("parallel.layers_per_stage", "parallel.stages"),
            f"parallel.layers_per_stage: has {len(split)} entries for parallel.stages={stages}; "
            "give one a stage",
        )
    if split is not None and sum(split) != layers:
        yield (
            ("parallel.layers_per_stage", "model.num_layers"),
            f"parallel.layers_per_stage: sums to {sum(split)}, but model.num_layers={layers}; "
            "make them equal",
        )
    yield from _ways(v)
    yield from _own_rows(v)
    yield from _steps(v)
    yield from _weights(v)
    yield from halo_faults(v)
    yield from _mini_batches(v)
    if v["model.name"] == "gat" and v["model.hidden"] % v["model.heads"]:
        yield (
            ("model.name", "model.hidden", "model.heads"),
            f"model.heads: {v['model.heads']} heads do not divide model.hidden={v['model.hidden']}",
        )
    if v["dataset.kind"] == "generated" and v["dataset.num_classes"] > v["dataset.num_nodes"]:
        yield (
            ("dataset.kind", "dataset.num_classes", "dataset.num_nodes"),
            f"dataset.num_classes: {v['dataset.num_classes']} classes need as many vertices, but "
            f"dataset.num_nodes={v['dataset.num_nodes']}",
        )
    if v["optimizer.momentum"] and v["optimizer.name"] != "sgd":
        yield (
            ("optimizer.momentum", "optimizer.name"),
            f"optimizer.momentum: only sgd has momentum, but optimizer.name={v['optimizer.name']}; "
            "use optimizer.betas",
        )
    if not v["partition.cost_vertex"] and not v["partition.cost_edge"]:
        yield (
            ("partition.cost_vertex", "partition.cost_edge"),
            "partition.cost_vertex: and partition.cost_edge are both 0; make one of them positive",
        )
    if v["run.overwrite"] and v["run.dir"] is None:
        yield ("run.overwrite", "run.dir"), "run.overwrite: needs run.dir, the directory to replace"


def _ways(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    ways, stages = v["parallel.ways"], v["parallel.stages"]
    if not isinstance(ways, int) and len(ways) != stages:
        yield (
            ("parallel.ways", "parallel.stages"),
            f"parallel.ways: {len(ways)} numbers for parallel.stages={stages}; give one a stage, or one "
            "number for all",
        )


def _steps(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Micro-batches of several chunks, epochs of several steps, and the histories that these read."""
    chunks, joined, steps = v["batch.num_chunks"], v["batch.joined"], v["batch.steps_per_epoch"]
    mode = v["history.mode"]
    if v["batch.kind"] not in ("chunks", "clusters"):
        if v["trace.history_error"] or v["history.store"] == "disk":
            yield (
                ("trace.history_error", "history.store", "batch.kind"),
                "trace.history_error, history.store: are of chunks' histories; mini-batches "
                f"(batch.kind={v['batch.kind']}) keep none, or those of history.control_variates in memory",
            )
        if steps > 1:
            yield (
                ("batch.steps_per_epoch", "batch.kind"),
                f"batch.steps_per_epoch: batch.kind={v['batch.kind']} takes as many steps as deal out all "
                "seeds; use batch.size or batch.per_step",
            )
        return
    if chunks % joined:
        yield (
            ("batch.joined", "batch.num_chunks"),
            f"batch.joined: {joined} chunks a micro-batch do not divide batch.num_chunks={chunks}; "
            "use one of its divisors",
        )
    elif chunks // joined % steps:
        yield (
            ("batch.steps_per_epoch", "batch.joined", "batch.num_chunks"),
            f"batch.steps_per_epoch: {steps} steps cannot share {chunks // joined} micro-batches "
            f"(batch.num_chunks={chunks}, batch.joined={joined}) equally; use a divisor",
        )
    if v["history.store"] == "disk" and v["device"] != "cpu":
        yield (
            ("history.store", "device"),
            f"history.store: files are mapped into the CPU's memory, but device={v['device']}; use memory",
        )
    if v["batch.kind"] == "clusters":
        if joined > 1:
            yield (
                ("batch.joined", "batch.kind"),
                "batch.joined: clusters have no edges between them that joining could restore; use "
                "batch.kind=chunks, with history.mode=drop to leave out edges to chunks outside",
            )
        return  # they have no history
    if steps > 1 and mode == "snapshot" and v["weights.policy"] == "flush":
        yield (
            ("batch.steps_per_epoch", "history.mode", "weights.policy"),
            "batch.steps_per_epoch: a snapshot is of one step, in which every chunk has run; use "
            "history.mode=latest, or batch.steps_per_epoch=1",
        )
    if mode == "snapshot" and not v["history.warmup_steps"]:
        yield (
            ("history.warmup_steps", "history.mode"),
            "history.warmup_steps: the first snapshot is taken of an exact step; use 1 or more, or "
            "history.mode=latest",
        )
    if v["history.refresh_every"] is not None and mode != "latest":
        cure = "use history.period" if mode == "snapshot" else "leave it out"
        yield (
            ("history.refresh_every", "history.mode"),
            f"history.refresh_every: renews what history.mode=latest reads, but it is {mode}; {cure}",
        )
    if v["trace.history_error"] and mode != "latest":
        yield (
            ("trace.history_error", "history.mode"),
            f"trace.history_error: is defined for history.mode=latest, but it is {mode}; leave it out",
        )
    if v["history.compensate"]:
        yield from _compensation(v, steps)


def _compensation(v: Mapping[str, Any], steps: int) -> Iterator[tuple[tuple[str, ...], str]]:
    needed = {"history.mode": "latest", "history.gamma": 1, "history.warmup_steps": 0}
    why = {
        "history.mode": "what it compensates for are gradients of rows read from there",
        "history.gamma": "gradients are kept as they are for later steps",
        "history.warmup_steps": "kept gradients start from zero, all in the units of a step's loss",
    }
    for key, value in needed.items():
        if v[key] != value:
            yield (
                ("history.compensate", key),
                f"history.compensate: needs {key}={value}, not {v[key]}: {why[key]}",
            )
    if steps == 1:
        yield (
            ("history.compensate", "batch.steps_per_epoch"),
            "history.compensate: compensates for chunks outside a step, but batch.steps_per_epoch=1 leaves "
            "none; use more steps",
        )


_ORDERS = {"local": "local_learning", "flush": None}
"""Policy of weights → the schedule that it is for; those not named here: async_1f1b; None: all others."""


def _weights(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Which policies go with which order, and what cannot be done without a flush."""
    policy, name = v["weights.policy"], v["schedule.name"]
    keys = ("weights.policy", "schedule.name")
    order = _ORDERS.get(policy, "async_1f1b")
    if order is not None and name != order:
        yield (
            keys,
            f"weights.policy: {policy} needs schedule.name={order}, not {name}: in other orders updates wait "
            "for all passes; set it, or use weights.policy=flush",
        )
    if order is None:
        if name == "local_learning" or (name == "async_1f1b" and v["batch.steps_per_epoch"] > 1):
            choice = "local" if name == "local_learning" else "stash, or another policy,"
            yield (keys, f"weights.policy: schedule.name={name} has no flush; say {choice} in its place")
        if v["weights.sync_epochs"]:
            text = "weights.sync_epochs: with weights.policy=flush every epoch is synchronous; leave it out"
            yield (("weights.sync_epochs", "weights.policy"), text)
        return
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


_PREDICTING = ("spectrain", "xpipe", "pipeoptim")


_OF_HISTORIES = {"history.refresh_every": None, "history.store": "memory", "trace.history_error": False}
"""Key → its default."""


def _own_rows(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where ways keep rows of their own only, a step is one exact micro-batch."""
    wanted = {
        "parallel.split": v["parallel.split"] == "features",
        "memory.sequential": v["memory.sequential"],
    }
    for key in [key for key, is_set in wanted.items() if is_set]:
        if v["batch.kind"] != "chunks":
            yield (
                (key, "batch.kind"),
                f"{key}: clusters read nothing of each other that could be exchanged; use batch.kind=chunks",
            )
        elif v["batch.num_chunks"] != 1:
            yield (
                (key, "batch.num_chunks"),
                f"{key}: ways keep rows of the current micro-batch only and no history, so it must be the "
                f"whole graph; set batch.num_chunks=1 (it is {v['batch.num_chunks']})",
            )
        for of_history, default in _OF_HISTORIES.items():
            if v[of_history] != default:
                yield (
                    (key, of_history),
                    f"{of_history}: {key} leaves no history that this could be about; leave it out",
                )
    if all(wanted.values()):
        yield (
            tuple(wanted),
            "memory.sequential: with parallel.split=features no row is fetched from others; choose one",
        )


def _mini_batches(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    kind, fanouts, layers = v["batch.kind"], v["batch.fanouts"], v["model.num_layers"]
    if v["parallel.replicas"] > 1 and kind == "chunks":
        count = v["parallel.replicas"]
        yield (
            ("parallel.replicas", "batch.kind"),
            f"parallel.replicas: {count} replicas need micro-batches that read nothing of each other, but "
            f"batch.kind={kind}; use parallel.ways={count}, or another batch.kind",
        )
    if v["batch.per_step"] > 1 and kind in ("chunks", "clusters"):
        yield (
            ("batch.per_step", "batch.kind"),
            f"batch.per_step: {kind} are the micro-batches of a step, all of them; use batch.num_chunks",
        )
    if kind == "joined" and v["batch.joined"] > v["batch.num_chunks"]:
        yield (
            ("batch.joined", "batch.num_chunks", "batch.kind"),
            f"batch.joined: {v['batch.joined']} clusters a mini-batch, but there are only "
            f"batch.num_chunks={v['batch.num_chunks']}; cut more, or join fewer",
        )
    if kind == "shadow" and v["batch.budget"] == 0:
        yield ("batch.budget", "batch.kind"), "batch.budget: must be positive, or -1 for all neighbours"
    if kind not in ("neighbour", "layerwise"):
        if v["history.control_variates"]:
            yield (
                ("history.control_variates", "batch.kind"),
                "history.control_variates: correct what sampled edges leave out, but "
                f"batch.kind={kind} samples none; use batch.kind=neighbour",
            )
        return
    if v["model.name"] != "custom" and len(fanouts or ()) != layers:
        given = "null" if fanouts is None else f"{list(fanouts)}"
        yield (
            ("batch.fanouts", "model.num_layers", "batch.kind"),
            f"batch.fanouts: {given}, but model.num_layers={layers} and batch.kind={kind} needs one number a "
            f"layer, the last layer's first; for instance batch.fanouts=[{','.join(['10'] * min(layers, 4))}"
            f"{',...' if layers > 4 else ''}]",
        )
    least = -1 if kind == "neighbour" else 1
    if any(count == 0 or count < least for count in fanouts or ()):
        every = ", or -1 for all edges" if kind == "neighbour" else ""
        yield ("batch.fanouts", "batch.kind"), f"batch.fanouts: numbers must be positive{every}"
    if v["batch.labor"] and v["batch.replace"] and kind == "neighbour":
        yield (
            ("batch.labor", "batch.replace"),
            "batch.labor: a source is taken once or not at all; set batch.replace=false",
        )
