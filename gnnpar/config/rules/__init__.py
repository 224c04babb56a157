"""Rules that tie several keys together, checked before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gnnpar.config.rules.halo import halo_faults
from gnnpar.config.rules.mini_batches import mini_batch_faults
from gnnpar.config.rules.own_rows import own_rows_faults
from gnnpar.config.rules.steps import step_faults
from gnnpar.config.rules.ways import way_faults
from gnnpar.config.rules.weights import weight_faults

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
    yield from way_faults(v)
    yield from own_rows_faults(v)
    yield from step_faults(v)
    yield from weight_faults(v)
    yield from halo_faults(v)
    yield from mini_batch_faults(v)
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
            f"optimizer.momentum: only sgd has momentum, but optimizer.name={v['optimizer.name']}; set "
            "optimizer.momentum=0 (and optimizer.betas)",
        )
    if not v["partition.cost_vertex"] and not v["partition.cost_edge"]:
        yield (
            ("partition.cost_vertex", "partition.cost_edge"),
            "partition.cost_vertex: and partition.cost_edge are both 0; make one of them positive",
        )
    if v["run.overwrite"] and v["run.dir"] is None:
        yield ("run.overwrite", "run.dir"), "run.overwrite: needs run.dir, the directory to replace"
