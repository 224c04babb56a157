"""The row of a run in Besta and Hoefler's comparison of systems: its axes of parallelism, its asynchrony.

Everything follows from values of the configuration, by dotted key, and from the schedule; no system is known
by name. Keys that a release does not have count as not set, so a new axis is one rule here.

Axes (Besta and Hoefler, "Parallel and Distributed Graph Neural Networks: An In-Depth Concurrency Analysis",
§4): data parallelism over graph partitions and over mini-batches, whose samples are independent or depend on
each other; model parallelism over features and over a vertex's neighbours (the graph's structure), over
layers (macro pipeline) and over the phases of a layer (micro pipeline), and inside the networks ψ and φ
(ANN); asynchrony, with the age that what is read can reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gnnpar.config import RunConfig
from gnnpar.config.section import dump
from gnnpar.schedule import Schedule

__all__ = ["Stale", "Taxonomy", "flat_values", "taxonomy"]

Values = Mapping[str, Any]

_INDEPENDENT = frozenset({"clusters", "neighbour", "layerwise", "saint", "shadow"})
"""Kinds of micro-batches that do not read each other."""
_SAMPLES = frozenset({"neighbour", "layerwise", "saint", "shadow"})
"""Kinds whose batches are drawn anew, each with an update of its own."""


@dataclass(frozen=True)
class Stale:
    """One thing that is read late.

    Attributes:
        what: `embeddings`, `gradients` or `weights`. through: where they wait.
        bound: the most steps that they can be behind; None where there is no bound.
    """

    what: str
    through: str
    bound: int | None

    def __str__(self) -> str:
        age = "unbounded" if self.bound is None else f"at most {self.bound} step{'s' * (self.bound != 1)} old"
        return f"{self.what} {self.through}, {age}"


@dataclass(frozen=True)
class Taxonomy:
    """One row of the comparison.

    Attributes:
        architecture: how processes relate. processes: how many.
        batch: `full` or `mini`: rows that carry loss in one update.
        partition: ways that share a graph; 1 where none do.
        mini_batch: `independent`, `dependent`, or empty where all rows are one batch.
        mini_batch_parallel: several of them are worked on at the same time.
        feature: ways that share a row's features; structure: that share a row's neighbours; 1 where none do.
        macro: pipeline stages of layers. order: the schedule that they follow.
        micro: phases of a layer overlap across processes.
        ann_operator, ann_pipeline: the networks ψ and φ are themselves cut.
        stale: what is asynchronous.
        weight_copies: of every layer's weights, equal after every step, since gradients are summed in each.
        programming: formulation in which layers are written.
        partitioning: how vertices are cut. offload: what lies outside memory.
        remarks: what of the exact computation is left out or changed.
    """

    system: str
    architecture: str
    processes: int
    mode: str
    batch: str
    micro_batches: int
    partition: int
    mini_batch: str
    mini_batch_parallel: bool
    feature: int
    structure: int
    macro: int
    order: str
    micro: bool
    ann_operator: bool
    ann_pipeline: bool
    stale: tuple[Stale, ...]
    weight_copies: int
    programming: str
    partitioning: str
    offload: str
    remarks: tuple[str, ...]

    @property
    def distributed(self) -> bool:
        return self.processes > 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "distributed": self.distributed}

    def pairs(self) -> list[tuple[str, str]]:
        """The row in a reader's words, column by column."""
        order = "several at once" if self.mini_batch_parallel else "one after the other"
        batches = f"{self.mini_batch}, {self.micro_batches} a step, {order}"
        return [
            ("architecture", self.architecture),
            ("distributed", f"{self.processes} processes" if self.distributed else "no"),
            ("mode", f"{self.mode}, {self.batch} batch"),
            ("data parallelism: graph partition", _count(self.partition, "ways")),
            ("data parallelism: mini-batch", batches if self.mini_batch else "–"),
            ("operator parallelism: feature", _count(self.feature, "slices")),
            ("operator parallelism: structure", _count(self.structure, "shares")),
            ("pipeline: macro (layers)", f"{self.macro} stages, {self.order}" if self.macro > 1 else "–"),
            ("pipeline: micro (phases)", "yes" if self.micro else "–"),
            ("ANN parallelism", "yes" if self.ann_operator or self.ann_pipeline else "–"),
            ("asynchronous", "; ".join(map(str, self.stale)) or "nothing"),
            (
                "weights",
                f"{self.weight_copies} copies, gradients summed" if self.weight_copies > 1 else "1 copy",
            ),
            ("programming model", self.programming),
            ("partitioning", self.partitioning),
            ("offload", self.offload),
            ("remarks", "; ".join(self.remarks) or ("–" if self.stale else "exact")),
        ]


def flat_values(config: RunConfig) -> dict[str, Any]:
    """Every value by dotted key."""
    flat: dict[str, Any] = {}
    for name, value in dump(config).items():
        inner = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{name}.{key}": one for key, one in inner} or {name: value}
    return flat


def taxonomy(values: Values, schedule: Schedule) -> Taxonomy:
    """The row of a run.

    Args:
        values: by dotted key (`flat_values`).
        schedule: of one step.
    """
    facts = _Facts(values, schedule)
    return Taxonomy(
        system=str(values.get("system", "")),
        architecture="one process" if facts.processes == 1 else "equal processes, messages, no server",
        processes=facts.processes,
        mode="training",
        batch="mini" if facts.steps > 1 or facts.kind in _SAMPLES else "full",
        micro_batches=facts.micro_batches,
        partition=facts.ways if facts.kind == "chunks" and not facts.by_features else 1,
        mini_batch=facts.mini_batch,
        mini_batch_parallel=bool(facts.mini_batch) and facts.at_a_time,
        feature=facts.ways if facts.by_features else 1,
        structure=facts.ways if values.get("parallel.split") == "neighbours" else 1,
        macro=schedule.num_stages,
        order=schedule.name,
        micro=values.get("halo.mode") in ("stale", "bounded") and facts.ways > 1,
        ann_operator=False,
        ann_pipeline=False,
        stale=tuple(facts.stale()),
        weight_copies=schedule.num_replicas * facts.ways * facts.replicas,
        programming="local (rows, aggregation, rows); global (Â·X) where ψ is a constant times a row",
        partitioning=facts.partitioning,
        offload="histories in files" if values.get("history.store") == "disk" else "–",
        remarks=tuple(facts.remarks()),
    )


class _Facts:
    """What the rules ask of a configuration."""

    def __init__(self, values: Values, schedule: Schedule) -> None:
        self.values, self.schedule = values, schedule
        self.kind = values.get("batch.kind", "chunks")
        given = values.get("parallel.ways", 1)
        self._ways = [given] * schedule.num_ranks if isinstance(given, int) else list(given)
        self.ways = max(self._ways)
        self.replicas = int(values.get("parallel.replicas", 1))
        self.processes = sum(self._ways) * self.replicas
        self.joined = int(values.get("batch.joined", 1))
        chunks = int(values.get("batch.num_chunks", 1))
        self.steps = int(values.get("batch.steps_per_epoch", 1))
        self.micro_batches = max(chunks // (self.joined * self.steps), 1)
        self.chunks = chunks

    @property
    def by_features(self) -> bool:
        return self.values.get("parallel.split") == "features" and self.ways > 1

    @property
    def mini_batch(self) -> str:
        if self.kind in _SAMPLES:
            return "independent"
        if self.chunks // self.joined <= 1:
            return ""
        return "independent" if self.kind in _INDEPENDENT else "dependent"

    @property
    def at_a_time(self) -> bool:
        """Whether processes work on different micro-batches at once."""
        spread = self.schedule.num_ranks > 1 and self.schedule.num_micro_batches > 1
        own = self.ways > 1 and self.kind in _INDEPENDENT
        return spread or own or self.replicas > 1

    @property
    def reads_history(self) -> bool:
        if self.kind in _INDEPENDENT:
            return bool(self.values.get("history.control_variates"))
        several = self.chunks // self.joined > 1
        return several and self.values.get("history.mode", "latest") != "drop"

    def stale(self) -> list[Stale]:
        """What is read late, and how late."""
        values, found = self.values, []
        if self.reads_history:
            found.append(Stale("embeddings", "of other micro-batches from histories", self._history_bound()))
        if values.get("history.compensate"):
            found.append(Stale("gradients", "of other micro-batches from histories", self._epoch_bound()))
        mode = values.get("halo.mode", "exact")
        if self.ways > 1 and mode == "stale":
            found += [Stale(what, "of other ways", 1) for what in ("embeddings", "gradients")]
        age = int(values.get("halo.period", 1)) - 1
        if self.ways > 1 and mode == "bounded" and age:
            found.append(Stale("embeddings", "of other ways", age))
        policy = values.get("weights.policy", "flush")
        if policy not in ("flush", "local"):
            # The first of S stages has S micro-batches in flight, an update after each; 2BW waits for one.
            bound = 1 if policy == "double" else self.schedule.num_stages - 1
            found.append(Stale("weights", f"without a flush ({policy})", bound))
        return found

    def _epoch_bound(self) -> int:
        """A micro-batch runs once an epoch: first in one and last in the next, if the order is drawn anew."""
        shuffled = self.values.get("batch.shuffle", True) and self.steps > 1
        return 2 * self.steps - 1 if shuffled else self.steps

    def _history_bound(self) -> int | None:
        if self.kind in _SAMPLES:
            return self._refreshed(None)
        if self.values.get("history.mode") == "snapshot":
            return self._refreshed(int(self.values.get("history.period", 1)))
        return self._refreshed(self._epoch_bound())

    def _refreshed(self, bound: int | None) -> int | None:
        every = self.values.get("history.refresh_every")
        return bound if every is None else int(every) if bound is None else min(bound, int(every))

    @property
    def partitioning(self) -> str:
        parts = self.chunks * (self.ways if self.ways > 1 else 1)
        if parts == 1:
            return "–"
        if self.values.get("partition.path"):
            return "vertices, from a file"
        return f"vertices, by {self.values.get('partition.method', 'metis')}, balanced by a + b · degree"

    def remarks(self) -> list[str]:
        """What is not the exact computation on the whole graph."""
        values, found = self.values, []
        if self.kind == "clusters" and self.chunks > 1:
            found.append("edges between clusters are left out of training")
        if self.kind in _SAMPLES:
            found.append("neighbours are sampled")
        several = self.kind == "chunks" and self.chunks // self.joined > 1
        gamma = float(values.get("history.gamma", 1.0))
        if several and values.get("history.mode") == "drop":
            found.append("edges to micro-batches still to run are left out")
        if several and gamma == 0 and not values.get("history.compensate"):
            found.append("gradients between micro-batches are dropped")
        elif several and gamma not in (0.0, 1.0):
            found.append(f"gradients between micro-batches times {gamma:g}")
        elif several:
            found.append("histories count as constants")
        if values.get("weights.policy") == "local":
            found.append("every stage has a loss of its own, and no gradient passes between stages")
        mode = values.get("halo.mode", "exact")
        if self.ways > 1 and mode == "sampled":
            found.append("rows of other ways are sampled and rescaled")
        if self.ways > 1 and mode == "quantised":
            found.append("rows of other ways travel in fewer bits")
        if values.get("memory.sequential"):
            found.append("rows of other ways are fetched one way at a time, whenever they are read")
        if values.get("memory.recompute"):
            found.append("activations are computed again")
        return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number > 1 else "–"
