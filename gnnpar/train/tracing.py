"""What a run records beside its metrics, in the folder `trace` of its directory."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context, Mesh, Transport
from gnnpar.dist.clock import clock_offset
from gnnpar.errors import InputError
from gnnpar.trace import EventLog, Recorder, read_log
from gnnpar.trace.perfetto import write_perfetto
from gnnpar.train.order import build_schedule
from gnnpar.train.trainer import Trainer

__all__ = ["describe_run", "export", "open_recorder"]


def open_recorder(config: RunConfig, context: Context, run_dir: Path) -> Recorder:
    """The recorder of this rank; where `trace.enabled`, with a log in `trace/rank<N>.events`.

    On a GPU, a recorded span ends when the device has done what the span asked for: that takes from a traced
    run what it would gain by running ahead of its device.
    """
    if not config.trace.enabled:
        return Recorder()
    folder = run_dir / "trace"
    folder.mkdir(exist_ok=True)
    column, way = Mesh.of(config).place_of(context.rank)
    about: dict[str, Any] = {
        "rank": context.rank,
        "column": column,
        "way": way,
        "host": socket.gethostname(),
        "threads": torch.get_num_threads(),
        "offset": clock_offset(context, Transport(context, Recorder())),
    }
    on_gpu = context.device.type == "cuda"
    log = EventLog(folder / f"rank{context.rank}.events", about)
    return Recorder(log, config.trace.every, torch.cuda.synchronize if on_gpu else None)


def describe_run(trainer: Trainer, run_dir: Path) -> None:
    """What the events of a run are read with: its schedule, and about its layers and chunks.

    For what-if, the schedule also with twice the micro-batches, where the family has it.
    """
    folder, config = run_dir / "trace", trainer.config
    schedule = trainer.schedule
    (folder / "schedule.txt").write_text(schedule.to_text(), encoding="utf-8")
    with suppress(InputError):  # where twice as many make no sense
        more = replace(config, batch=replace(config.batch, num_chunks=2 * config.batch.num_chunks))
        twice = build_schedule(more, schedule.stage_edges)
        if twice.num_micro_batches == 2 * schedule.num_micro_batches > 2:
            (folder / "twice.txt").write_text(twice.to_text(), encoding="utf-8")
    about = {
        "layers": trainer.layer_names,
        "layers_per_stage": trainer.layers_per_stage,
        "chunk_rows": [chunk.num_rows for chunk in trainer.chunked.chunks],
        "num_edges": trainer.chunked.graph.num_edges,
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def export(run_dir: Path) -> None:
    """Write `trace.json` from the logs of all ranks, which must be closed."""
    logs = [read_log(path) for path in sorted((run_dir / "trace").glob("rank*.events"))]
    write_perfetto(sorted(logs, key=lambda log: log.rank), run_dir / "trace.json")
