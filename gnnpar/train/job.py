"""`Job`: what the parent of a run hands to its workers, as files, and how one rank runs it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gnnpar.batch import ChunkedGraph, load_chunked, save_chunked
from gnnpar.config.files import from_yaml
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Context
from gnnpar.errors import InputError
from gnnpar.graph import Graph
from gnnpar.interop.dgl import import_dgl
from gnnpar.model import Model, build_model
from gnnpar.train.loop import Epoch, number_or_null, train_loop
from gnnpar.train.sinks import open_sinks
from gnnpar.train.tracing import describe_run, export, open_recorder
from gnnpar.train.trainer import Trainer

logger = logging.getLogger("gnnpar.train.rank")

__all__ = ["Job", "make_model", "pickle_model", "run_rank"]


@dataclass(frozen=True)
class Job:
    """A run ready to start: `config.yaml` in the run directory; the graph and a custom model in its `.job`.

    Attributes:
        run_dir: of the run. Everything a worker needs lies in it.
    """

    run_dir: Path

    @property
    def folder(self) -> Path:
        return self.run_dir / ".job"

    def write(self, chunked: ChunkedGraph, pickled: bytes | None) -> None:
        """Write the graph, and the user's own model where there is one (see `pickle_model`)."""
        save_chunked(chunked, self.folder / "graph")
        if pickled is not None:
            (self.folder / "model.pkl").write_bytes(pickled)

    def read(self) -> tuple[RunConfig, ChunkedGraph, Model]:
        """Config, graph and model, the same on every rank."""
        config = from_yaml((self.run_dir / "config.yaml").read_text())
        chunked = load_chunked(self.folder / "graph")
        pickled = self.folder / "model.pkl"
        if not pickled.exists():
            return config, chunked, make_model(config, chunked.graph)
        import cloudpickle

        path, with_dgl, model = cloudpickle.loads(pickled.read_bytes())
        sys.path += [entry for entry in path if entry not in sys.path]
        if with_dgl:
            import_dgl()
        return config, chunked, cloudpickle.loads(model)

    def remove(self) -> None:
        """Forget the hand-over files; the results stay."""
        shutil.rmtree(self.folder, ignore_errors=True)


def pickle_model(model: Model) -> bytes:
    """A model as bytes for the workers. Raises `InputError` for one that cannot travel.

    Classes of a script or notebook travel by value; those of modules are imported, from wherever this process
    finds them. DGL, where this process has imported it, is imported by `import_dgl` before them: the model or
    modules beside it may import it plainly, which fails beside a recent torch.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((sys.path, "dgl" in sys.modules, cloudpickle.dumps(model))))
    except Exception as error:  # whatever the parts of a model raise when pickled
        raise InputError(
            "model",
            [f"cannot be sent to worker processes: {error}; keep handles and locks out of its layers"],
        ) from error


def make_model(config: RunConfig, graph: Graph) -> Model:
    """The configured model with parameters drawn from `seed`, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return build_model(
            config.model, graph.num_features, graph.num_classes, not isinstance(graph.x, torch.Tensor)
        )


def run_rank(job: Job, context: Context) -> dict[str, Any]:
    """Train this rank's stage; rank 0 writes metrics, `summary.json` and `model.pt`. Returns the summary."""
    config, chunked, model = job.read()
    if config.history.dir is None:
        folder = str(job.folder / "histories")
        config = replace(config, history=replace(config.history, dir=folder))
    recorder = open_recorder(config, context, job.run_dir)
    trainer = Trainer(model, chunked, config, context, recorder)
    logger.info(
        "rank %d of %d: %s, process %d, %d threads, %s",
        context.rank,
        context.world_size,
        socket.gethostname(),
        os.getpid(),
        torch.get_num_threads(),
        trainer.describe_stages(),
    )
    sinks = open_sinks(config, job.run_dir) if context.is_first else []
    if config.trace.enabled and context.is_first:
        describe_run(trainer, job.run_dir)

    def log(epoch: Epoch) -> None:
        for sink in sinks:
            sink.epoch(epoch)

    try:
        outcome = train_loop(trainer, config, log)
    finally:
        trainer.close()
        recorder.close()
        for sink in sinks:
            sink.close()
    # All ways of a stage hold the same bits.
    own = outcome.best_state if trainer.way == 0 else {}
    shares = context.gather_objects(own, "gathering the parameters")
    if context.is_first:
        parameters = {name: value for share in shares for name, value in share.items()}
        torch.save(parameters, job.folder / "model.pt")
        os.replace(job.folder / "model.pt", job.run_dir / "model.pt")
        summary = {key: number_or_null(value) for key, value in outcome.summary.items()}
        (job.folder / "summary.json").write_text(json.dumps(summary, indent=1))
        os.replace(job.folder / "summary.json", job.run_dir / "summary.json")
        if config.trace.enabled:
            export(job.run_dir)
    return outcome.summary
