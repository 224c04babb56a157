"""From a configuration to what one process runs: layers dealt to stages, and the executor of its stages."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Mesh, Transport
from gnnpar.errors import InputError
from gnnpar.model import Model
from gnnpar.parallel import make_halo
from gnnpar.plan import plan_stages
from gnnpar.runtime import (
    AnyStage,
    Executor,
    HistoryExchange,
    Stage,
    build_sampled_stage,
    build_stage,
)
from gnnpar.schedule import Schedule
from gnnpar.trace import Recorder
from gnnpar.train.feed import Feed
from gnnpar.train.order import build_schedule, runs_by_branch

__all__ = ["build_executor", "deal_layers"]


def deal_layers(
    model: Model, chunked: ChunkedGraph, config: RunConfig, context: Context, mesh: Mesh
) -> tuple[tuple[int, ...], Schedule]:
    """Layers of every stage (encoder and decoder count), and the schedule of a step."""
    by_branch, draft = runs_by_branch(config), build_schedule(config)
    holders = zip(*draft.placement, strict=True)
    ways = [min(mesh.ways[column] for column in of_stage) for of_stage in holders]
    split = plan_stages(model, chunked, config, context, draft.num_stages, ways, by_branch)
    return split, build_schedule(config, model.stage_edges(split) if by_branch else None)


def build_executor(
    model: Model, split: Sequence[int], feed: Feed, context: Context, recorder: Recorder
) -> tuple[Executor, list[Model], dict[int, Stage]]:
    """The executor of this process's stages, the model of every replica, and the stages that evaluate.

    Replicas of a stage hold parameters of their own, which start equal and stay so.
    """
    config, mesh, schedule = feed.config, feed.mesh, feed.schedule
    column, way = mesh.place_of(context.rank)
    transport = Transport(context, recorder)
    halo = make_halo(config, feed.trained, mesh, column, way, transport)
    files = None
    if config.history.store == "disk":
        if config.history.dir is None:
            cause = "the histories of this run are kept in files, but nothing says where; name a folder"
            raise InputError("trainer", [f"history.dir: {cause}"])
        files = Path(config.history.dir)
    models = [model, *(copy.deepcopy(model) for _ in range(1, schedule.num_replicas))]
    bounds = [0, *accumulate(split)]
    graph = feed.chunked.graph
    payloads = model.payloads(graph, split, schedule.stage_edges)
    held = {
        (replica, stage): (models[replica], range(bounds[stage], bounds[stage + 1]), stage)
        for replica, stage in schedule.stages_on(column)
    }
    stages = {
        (replica, number): build_stage(
            of,
            feed.trained,
            layers,
            feed.copies,
            config,
            context.device,
            payloads,
            number,
            halo,
            files and files / f"rank{context.rank}-replica{replica}",
        )
        for (replica, _), (of, layers, number) in held.items()
    }
    evaluating = {number: stage for (replica, number), stage in stages.items() if replica == 0}
    running: Mapping[tuple[int, int], AnyStage] = stages
    if config.batch.sampled:
        running = {
            key: build_sampled_stage(of, graph, layers, config, payloads, number)
            for key, (of, layers, number) in held.items()
        }
    histories = None
    if feed.dealt and feed.policy.mode != "drop":
        histories = HistoryExchange(stages, model.cut_specs(graph), transport, context.device)
    executor = Executor(context.rank, running, transport, recorder, context.device, mesh, histories)
    return executor, models, evaluating
