"""Rules of sampled mini-batches and of replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["mini_batch_faults"]


def mini_batch_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
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
