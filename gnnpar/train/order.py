"""The schedule of a run: from the configuration to a checked, lowered program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gnnpar.config.schema import BatchConfig, RunConfig
from gnnpar.dist import Mesh
from gnnpar.errors import InputError
from gnnpar.schedule import Schedule, check, with_reductions
from gnnpar.schedule.families import FAMILIES

__all__ = ["build_schedule", "runs_by_branch", "schedule_faults"]

_KEYS = {
    "stages": "parallel.stages",
    "chunks": "schedule.chunks",
    "waves": "schedule.waves",
    "advance": "schedule.advance",
    "updates": "batch.steps_per_epoch",
}
"""What families call their arguments → what a configuration calls them."""


def runs_by_branch(config: RunConfig) -> bool:
    """Whether the family runs a graph of stages, so that a stage holds layers of one branch only."""
    return config.schedule.name in FAMILIES and "edges" in FAMILIES[config.schedule.name].options


def build_schedule(
    config: RunConfig, edges: Sequence[tuple[int, int]] | None = None, flush: bool = False
) -> Schedule:
    """The schedule of one step over its micro-batches and `parallel.stages` ranks. Stages are reduced where
    several ways share a rank. There are `batch.num_chunks` micro-batches, or as many as `batch.joined` and
    `batch.steps_per_epoch` leave; or `batch.per_step` mini-batches.

    Args:
        edges: between stages, for a family that runs a graph of them; default: a chain.
        flush: make the updates of a family that knows several one after the other.

    Raises:
        InputError: no such family, counts that it is not defined for, or an order that the micro-batches do
            not allow, with the reason and the nearest legal choice.
    """
    name = config.schedule.name
    if name not in FAMILIES:
        raise _refused(f"schedule.name: there is no {name!r}; choose one of {', '.join(FAMILIES)}")
    given = {key: getattr(config.schedule, key) for key in ("chunks", "waves", "advance")}
    options: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if runs_by_branch(config):
        options["edges"] = tuple(pairwise(range(config.parallel.stages))) if edges is None else edges
    batches = config.batch.micro_batches
    if name in FAMILIES and "updates" in FAMILIES[name].options:
        options |= {"updates": config.batch.steps_per_epoch, **({"flush": True} if flush else {})}
        batches *= config.batch.steps_per_epoch
    try:
        schedule = FAMILIES[name](config.parallel.stages, batches, **options)
    except InputError as error:
        batch, which = config.batch, f"schedule.name={name}"
        if not batch.sampled and batch.micro_batches != batch.num_chunks:
            which += f", {batch.micro_batches} micro-batches of batch.num_chunks={batch.num_chunks}"
            which += f", batch.joined={batch.joined}, batch.steps_per_epoch={batch.steps_per_epoch}"
        raise _refused(*(f"{_in_config(fault, batch)} ({which})" for fault in error.faults)) from None
    ways = Mesh.of(config).ways
    if schedule.num_replicas > 1 and max(ways) > 1 and not config.batch.independent:
        raise _refused(
            f"parallel.ways: {name} deals chunks to two copies of the pipeline, which read each other from "
            "history; ways do not exchange histories with another copy's; use batch.kind=clusters, "
            "parallel.ways=1, or another schedule"
        )
    schedule = with_reductions(schedule, [rank for rank, count in enumerate(ways) if count > 1])
    if config.batch.independent:
        _check(schedule, batch="cluster")
        return schedule
    # With history.mode=drop, too, a chunk reads the chunks before it and sends gradients back to them.
    gradient = "drop" if config.history.gamma == 0 else "accumulate"
    _check(schedule, batch="chunk", neighbours="history", gradient=gradient)
    return schedule


def schedule_faults(config: RunConfig) -> list[str]:
    """What `build_schedule` would raise."""
    try:
        build_schedule(config)
    except InputError as error:
        return list(error.faults)
    return []


def _check(schedule: Schedule, **how: Any) -> None:
    try:
        check(schedule, **how)
    except InputError as error:
        found = [fault.replace("schedule=gpipe", "schedule.name=gpipe") for fault in error.faults]
        raise _refused(*(f"schedule.name: {schedule.name}: {fault}" for fault in found)) from None


def _in_config(fault: str, batch: BatchConfig) -> str:
    key, colon, text = fault.partition(":")
    keys = {**_KEYS, "micro_batches": "batch.per_step" if batch.sampled else "batch.num_chunks"}
    return f"{keys.get(key, key)}{colon}{text}"


def _refused(*faults: str) -> InputError:
    return InputError("configuration", faults)
