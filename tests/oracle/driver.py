"""Where the oracles meet the package: what a case is, how the trainer runs it, how the reference runs it.

Everything that depends on how `Trainer` is called stands here.
"""

from dataclasses import dataclass, field, fields
from functools import partial

import torch
from oracle.dense_reference import DenseReference
from oracle.models import build, history, model_config
from oracle.partial_reference import PartialReference
from support.graphs import chunk_assignment, tiny_graph

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import (
    BatchConfig,
    HaloConfig,
    MemoryConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from gnnpar.dist import Mesh
from gnnpar.schedule import owners
from gnnpar.train.order import build_schedule
from gnnpar.train.trainer import Trainer

__all__ = [
    "TOLERANCE",
    "Case",
    "StepRecord",
    "make_trainer",
    "mismatches",
    "run_cases",
    "run_reference",
    "run_trainer",
]

TOLERANCE = 1e-10
"""Of a gradient's error, relative to the largest gradient element of the model."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run of a few steps. Defaults: full batch in one process."""

    layer: str = "gcnii"
    directed: bool = True
    stages: int = 1
    ways: int | tuple = 1
    chunks: int = 1
    mode: str = "latest"
    gamma: float = 1.0
    period: int = 2
    warmup: int = 1
    optimizer: str = "sgd"
    steps: int = 3
    shuffle: bool = True
    recompute: bool = False
    sliced: bool = False
    sequential: bool = False
    threads: int = 1
    seed: int = 3
    num_layers: int = 4
    lr: float | None = None
    split: tuple = None
    schedule: str = "gpipe"
    joined: int = 1
    parts: int = 1
    compensate: bool = False
    refresh: int | None = None
    decay: tuple = (0.0, None)
    clip: float | None = None
    halo: tuple = ()
    graph: tuple = field(default=())
    model: tuple = field(default=())

    def __str__(self):
        changed = [f.name for f in fields(self) if f.name != "layer" and getattr(self, f.name) != f.default]
        return "-".join([self.layer] + [f"{name}={_short(getattr(self, name))}" for name in changed])

    @property
    def learning_rate(self):
        return self.lr or {"sgd": 0.2, "adam": 1e-3, "adamw": 1e-3}[self.optimizer]

    @property
    def mesh(self):
        return Mesh.of(self.config())

    def build_graph(self):
        return tiny_graph(self.directed, **dict(self.graph))

    def build_model(self, graph):
        return build(self.layer, graph, num_layers=self.num_layers, **dict(self.model))

    def config(self):
        return RunConfig(
            seed=self.seed,
            dtype="float64",
            model=model_config(self.layer, self.num_layers, **dict(self.model)),
            parallel=ParallelConfig(
                stages=self.stages,
                ways=self.ways,
                layers_per_stage=self.split,
                split="features" if self.sliced else "vertices",
            ),
            batch=BatchConfig(
                num_chunks=self.chunks, joined=self.joined, steps_per_epoch=self.parts, shuffle=self.shuffle
            ),
            schedule=ScheduleConfig(name=self.schedule),
            history=history(
                self.mode,
                period=self.period,
                gamma=self.gamma,
                warmup=self.warmup,
                refresh_every=self.refresh,
                compensate=self.compensate,
            ),
            halo=HaloConfig(**dict(self.halo)),
            memory=MemoryConfig(recompute=self.recompute, sequential=self.sequential),
            train=TrainConfig(
                lr=self.learning_rate,
                weight_decay=self.decay[0],
                conv_weight_decay=self.decay[1],
                grad_clip=self.clip,
            ),
            optimizer=OptimizerConfig(name=self.optimizer),
        )


@dataclass
class StepRecord:
    """What one step gave: on one rank, or put together from all of them."""

    loss: float
    order: tuple
    age: float
    share: float
    gradients: dict
    parameters: dict
    bytes_sent: dict = field(default_factory=dict)
    rows_by_age: dict = field(default_factory=dict)


def run_cases(context, cases):
    """For the pool: every case's steps, as this rank saw them."""
    return [run_case(context, case) for case in cases]


def run_case(context, case):
    threads = torch.get_num_threads()
    torch.set_num_threads(case.threads)
    try:
        trainer = make_trainer(case, context)
        return [record_step(trainer) for _ in range(case.steps)]
    finally:
        torch.set_num_threads(threads)


def make_trainer(case, context, chunked=None):
    """`chunked`: the case's graph, where not renumbered as here."""
    graph = case.build_graph()
    if chunked is not None:
        return Trainer(case.build_model(graph), chunked, case.config(), context)
    chunk_of = chunk_assignment(graph, case.mesh.num_chunks)
    shuffled = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    order = shuffled[torch.argsort(chunk_of[shuffled], stable=True)]
    offsets = (0, *torch.bincount(chunk_of, minlength=case.mesh.num_chunks).cumsum(0).tolist())
    return Trainer(
        case.build_model(graph), ChunkedGraph(graph.permute(order), offsets), case.config(), context
    )


def record_step(trainer):
    trainer.recorder.reset()
    result = trainer.train_step()
    clone = {name: g.clone() for name, g in trainer.gradients().items()}
    parameters = {name: p.clone() for name, p in trainer.parameters().items()}
    return StepRecord(
        loss=result.loss,
        order=tuple(trainer.step_order),
        age=result.history_age,
        share=result.history_share,
        gradients=clone,
        parameters=parameters,
        bytes_sent=trainer.recorder.bytes_by_kind(),
        rows_by_age=dict(trainer.recorder.rows_by_age),
    )


def run_trainer(pool, cases, timeout_s=200.0):
    """`{case: [StepRecord of the whole model]}`; all cases have the same number of processes."""
    (size,) = {case.mesh.size for case in cases}
    ranks = pool.run(run_cases, size, cases, timeout_s=timeout_s)
    return {
        case: [merge(step) for step in zip(*of_ranks, strict=True)]
        for case, of_ranks in zip(cases, zip(*ranks, strict=True), strict=True)
    }


def merge(ranks):
    """One record of all ranks' records of a step; checks that they agree where they must."""
    first = ranks[0]
    for other in ranks[1:]:
        assert (other.loss, other.order) == (first.loss, first.order), "ranks disagree on loss or order"
        assert (other.age, other.share) == (first.age, first.share), "ranks disagree on age or share"
    merged = StepRecord(first.loss, first.order, first.age, first.share, {}, {})
    for rank in ranks:
        for name in merged.gradients.keys() & rank.gradients.keys():  # held by another rank, too
            assert torch.equal(merged.gradients[name], rank.gradients[name]), f"gradients of {name} differ"
            assert torch.equal(merged.parameters[name], rank.parameters[name]), f"copies of {name} differ"
        merged.gradients |= rank.gradients
        merged.parameters |= rank.parameters
        for kind, count in rank.bytes_sent.items():
            merged.bytes_sent[kind] = merged.bytes_sent.get(kind, 0) + count
        for age, count in rank.rows_by_age.items():
            merged.rows_by_age[age] = merged.rows_by_age.get(age, 0) + count
    return merged


def make_reference(case, kind=DenseReference, **changes):
    """The reference for a case; `changes` to the semantics show that the comparison can fail."""
    graph = case.build_graph()
    model = case.build_model(graph)
    inner = ("layers.", "branches.")
    ends = [p for name, p in model.named_parameters() if not name.startswith(inner)]
    convs = [p for name, p in model.named_parameters() if name.startswith(inner)]
    decay, conv_decay = case.decay
    groups = [
        {"params": ends, "weight_decay": decay},
        {"params": convs, "weight_decay": decay if conv_decay is None else conv_decay},
    ]
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case.optimizer]
    keys = {"mode": case.mode, "period": case.period, "gamma": case.gamma, "warmup": case.warmup}
    seed = changes.pop("seed", case.seed)
    optimizer = make(groups, lr=case.learning_rate)
    chunk_of = chunk_assignment(graph, case.mesh.num_chunks)
    streams = owners(build_schedule(case.config()))
    streams = changes.pop("streams", streams if any(streams) else None)
    slot_size = changes.pop("slot_size", case.mesh.slot_size * case.joined)
    keys |= {"compensate": case.compensate, "refresh_every": case.refresh}
    return kind(model, graph, chunk_of, history(**(keys | changes)), optimizer, seed, streams, slot_size)


def run_reference(case, orders, **changes):
    """`[Step]` of the dense reference, chunks in the given orders."""
    if case.parts > 1 or case.joined > 1 or case.refresh or not case.warmup:
        changes = {"kind": partial(PartialReference, num_steps=case.parts)} | changes
    reference = make_reference(case, **changes)
    return [reference.step(list(order)) for order in orders]


def mismatches(records, steps, tolerance=TOLERANCE):
    """What differs between a run's records and the reference's steps, one line each."""
    lines = []
    for t, (record, step) in enumerate(zip(records, steps, strict=True)):
        if abs(record.loss - step.loss) > tolerance * abs(step.loss):
            lines.append(f"step {t}: loss {record.loss!r}, reference {step.loss!r}")
        missing = step.gradients.keys() ^ record.gradients.keys()
        if missing:
            lines.append(f"step {t}: parameters on one side only: {sorted(missing)}")
        largest = max(float(g.abs().max()) for g in step.gradients.values()) or 1.0  # 0: no labels
        for name in step.gradients.keys() & record.gradients.keys():
            error = float((record.gradients[name] - step.gradients[name]).abs().max()) / largest
            if not error <= tolerance:
                lines.append(f"step {t}: gradient of {name} off by {error:.2e} · max|g|")
        for what in ("age", "share"):
            found, wanted = getattr(record, what), getattr(step, what)
            if abs(found - wanted) > 1e-12:
                lines.append(f"step {t}: {what} {found}, reference {wanted}")
    return lines


def _short(value):
    if isinstance(value, tuple):
        return "+".join(str(v) if not isinstance(v, tuple) else ":".join(map(str, v)) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
