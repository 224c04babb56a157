"""Rules of epochs of several steps, joined chunks and the histories that these read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["step_faults"]


_OF_HISTORIES = {"history.compensate": False, "history.refresh_every": None, "trace.history_error": False}
"""Key → its default."""


def step_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
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
        for key, default in _OF_HISTORIES.items():
            if v[key] != default:
                text = f"{key}: clusters read nothing of each other, so there are no histories; leave it out"
                yield ((key, "batch.kind"), text)
        return
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
