"""What later steps read of earlier ones, as tensors: for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnpar.errors import Faults
from gnnpar.runtime import Aggregation, AnyStage, ControlVariates, SampledStage, Stage
from gnnpar.train.feed import Feed
from gnnpar.train.sampled_feed import SampledFeed

__all__ = ["histories_state", "load_histories"]

Stages = Mapping[tuple[int, int], AnyStage]


def histories_state(stages: Stages, feed: Feed) -> dict[str, Any]:
    """Histories of this process's stages, gradients that outlive a step, and the age of each chunk's rows.

    The tensors are those in use, not copies: write or clone them before the next step. Cost: none; N · K
    elements a layer.
    """
    if isinstance(feed, SampledFeed):
        rows = {name: one.state() for name, one in _variates(stages).items()}
        return {"graph": feed.trained.graph.fingerprint, "layers": rows}
    layers = {name: one.state() for name, one in _aggregations(stages).items()}
    return {"graph": feed.trained.graph.fingerprint, "ran_in": feed.ran_in, "layers": layers}


def load_histories(stages: Stages, feed: Feed, state: Mapping[str, Any]) -> None:
    """Put back what `histories_state` gave, before the next step. Raises `InputError`, and changes nothing,
    where it is of another graph, of other layers or of other shapes."""
    faults = Faults("histories of a checkpoint")
    graph = feed.trained.graph
    if isinstance(feed, SampledFeed):
        variates = _variates(stages)
        if state["graph"] != graph.fingerprint or state["layers"].keys() != variates.keys():
            faults.add(
                f"they are of graph {state['graph']}, layers {sorted(state['layers'])}, but the run is of "
                f"{graph.fingerprint}, layers {sorted(variates)}; keep graph, parallel.* and model.*"
            )
        faults.raise_if_any()
        for name, one in variates.items():
            one.load(state["layers"][name])
        return
    if state["graph"] != graph.fingerprint or state["ran_in"].shape != feed.ran_in.shape:
        faults.add(
            f"they are of graph {state['graph']} in {len(state['ran_in'])} chunks, but the run is of "
            f"{graph.fingerprint} in {len(feed.ran_in)}; use the graph and the partition of then"
        )
    held = _aggregations(stages)
    for name in sorted(held.keys() ^ state["layers"].keys()):
        where = "the checkpoint has none" if name in held else "the run has no such layer here"
        faults.add(f"replica and layer {name}: {where}; keep parallel.* and model.* as they were")
    for name in held.keys() & state["layers"].keys():
        found = state["layers"][name]
        copies = held[name].cut.copies * graph.num_nodes
        if "cut" in found and found["cut"].shape[0] != copies:
            faults.add(
                f"replica and layer {name}: {found['cut'].shape[0]} rows, but the run keeps {copies}; keep "
                "history.* and memory.recompute as they were"
            )
    faults.raise_if_any()
    feed.ran_in.copy_(state["ran_in"])
    for name, aggregation in held.items():
        aggregation.load(state["layers"][name], feed.trained.chunks)


def _aggregations(stages: Stages) -> dict[str, Aggregation]:
    return {
        f"{replica}.{index}": aggregation
        for (replica, _), stage in stages.items()
        if isinstance(stage, Stage)
        for index, aggregation in stage.aggregating()
    }


def _variates(stages: Stages) -> dict[str, ControlVariates]:
    return {
        f"{replica}.{number}.{place}": one
        for (replica, number), stage in stages.items()
        if isinstance(stage, SampledStage)
        for place, one in enumerate(stage.variates)
    }
