"""Schedule: what every rank does in one step, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gnnpar.errors import Faults, InputError
from gnnpar.schedule.action import Item, parse_item
from gnnpar.schedule.program import BATCH_MASK, REPLICA_MASK, STAGE_MASK, Program

__all__ = ["Schedule"]

_MAGIC = "gnnpar schedule 1"


@dataclass(frozen=True)
class Schedule:
    """A plan of one step. Families build it, ``lower`` inserts the communication, an executor runs it.

    Args:
        name: the family.
        num_stages: S, stages 0 … S−1 in topological order.
        num_micro_batches: M, counted over all replicas; each runs in one replica only.
        ranks: the program of each rank; iterables of items are accepted and packed.
        placement: ``placement[replica][stage]`` is the rank that holds the stage; default: stage s on rank s.
            A rank here is one column of the pipeline: the ways that may share it all follow its program.
        edges: pairs of stages (from, to); default: the chain 0 → 1 → … → S−1.
        lowered: whether SEND and RECV have been inserted.
        num_updates: U, STEPs of every stage: the k-th follows the backwards of micro-batches k · M/U to
            (k+1) · M/U − 1 on that stage. More than one without a flush between them is what makes a
            schedule asynchronous; which weights a pass then sees is not the schedule's to say.
        detached: no gradient crosses from stage to stage (local learning).
    """

    name: str
    num_stages: int
    num_micro_batches: int
    ranks: tuple[Program, ...]
    placement: tuple[tuple[int, ...], ...] = ()
    edges: tuple[tuple[int, int], ...] | None = None
    lowered: bool = False
    num_updates: int = 1
    detached: bool = False

    def __post_init__(self) -> None:
        ranks: Iterable[Iterable[Item | int] | Program] = self.ranks
        programs = tuple(rank if isinstance(rank, Program) else Program(rank) for rank in ranks)
        object.__setattr__(self, "ranks", programs)
        if not self.placement:
            object.__setattr__(self, "placement", (tuple(range(self.num_stages)),))
        chain = tuple((stage, stage + 1) for stage in range(self.num_stages - 1))
        object.__setattr__(self, "edges", chain if self.edges is None else tuple(sorted(self.edges)))
        self._check_counts()

    def _check_counts(self) -> None:
        faults = Faults(f"schedule {self.name}")
        counts = (
            ("stages", self.num_stages, STAGE_MASK),
            ("micro_batches", self.num_micro_batches, BATCH_MASK + 1),
            ("replicas", self.num_replicas, REPLICA_MASK + 1),
        )
        for key, value, most in counts:
            if not 1 <= value <= most:
                faults.add(f"{key}: must be at least 1 and at most {most:,}, got {value}")
        if self.num_updates < 1 or self.num_micro_batches % self.num_updates:
            faults.add(
                f"updates: {self.num_updates} must divide the number of micro-batches, "
                f"{self.num_micro_batches}"
            )
        for replica, row in enumerate(self.placement):
            if len(row) != self.num_stages:
                faults.add(f"placement of replica {replica}: {len(row)} entries for {self.num_stages} stages")
            for stage, rank in enumerate(row):
                if not 0 <= rank < self.num_ranks:
                    faults.add(f"placement: stage {stage} is on rank {rank}, but ranks are {self.num_ranks}")
        for source, target in self.stage_edges:
            if not 0 <= source < target < self.num_stages:
                faults.add(f"edges: {source} → {target} must go to a later stage below {self.num_stages}")
        faults.raise_if_any()

    @property
    def stage_edges(self) -> tuple[tuple[int, int], ...]:
        """The edges of the graph of stages (never None)."""
        assert self.edges is not None
        return self.edges

    def update_of(self, micro_batch: int) -> int:
        """The update that a micro-batch's gradients go into."""
        return micro_batch * self.num_updates // self.num_micro_batches

    @property
    def num_ranks(self) -> int:
        return len(self.ranks)

    @property
    def num_replicas(self) -> int:
        return len(self.placement)

    @property
    def is_chain(self) -> bool:
        return self.edges == tuple((stage, stage + 1) for stage in range(self.num_stages - 1))

    def rank_of(self, stage: int, replica: int = 0) -> int:
        """The rank that holds this stage of this replica."""
        return self.placement[replica][stage]

    def stages_on(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The (replica, stage) pairs that a rank holds."""
        return tuple(
            (replica, stage)
            for replica, row in enumerate(self.placement)
            for stage, holder in enumerate(row)
            if holder == rank
        )

    def predecessors(self, stage: int) -> tuple[int, ...]:
        """The stages whose output this stage reads."""
        return tuple(source for source, target in self.stage_edges if target == stage)

    def successors(self, stage: int) -> tuple[int, ...]:
        """The stages that read this stage's output."""
        return tuple(target for source, target in self.stage_edges if source == stage)

    def with_ranks(self, ranks: Iterable[Iterable[Item | int]], **changes: object) -> Schedule:
        """This schedule with other programs."""
        programs = tuple(rank if isinstance(rank, Program) else Program(rank) for rank in ranks)
        return replace(self, ranks=programs, **changes)  # type: ignore[arg-type]

    def to_text(self) -> str:
        """The whole schedule as text, one line a rank; ``from_text`` reads it back."""
        lines = [
            _MAGIC,
            f"name: {self.name}",
            f"stages: {self.num_stages}",
            f"micro_batches: {self.num_micro_batches}",
            f"lowered: {str(self.lowered).lower()}",
        ]
        if self.num_updates > 1:
            lines.append(f"updates: {self.num_updates}")
        if self.detached:
            lines.append("detached: true")
        lines += [f"placement@{copy}: {' '.join(map(str, row))}" for copy, row in enumerate(self.placement)]
        if not self.is_chain:
            lines.append("edges: " + " ".join(f"{source}>{target}" for source, target in self.stage_edges))
        lines += [f"rank {number}: {' '.join(rank.texts())}" for number, rank in enumerate(self.ranks)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """Reads ``to_text``. Raises InputError that names the line that cannot be read."""
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines or lines[0] != _MAGIC:
            raise InputError("schedule text", [f"the first line must be '{_MAGIC}'"])
        fields: dict[str, str] = {}
        for line in lines[1:]:
            key, colon, value = line.partition(":")
            if not colon:
                raise InputError("schedule text", [f"'{line}' is not of the form 'key: value'"])
            fields[key] = value.strip()
        try:
            edges = fields.get("edges")
            return cls(
                name=fields["name"],
                num_stages=int(fields["stages"]),
                num_micro_batches=int(fields["micro_batches"]),
                lowered=fields["lowered"] == "true",
                num_updates=int(fields.get("updates", 1)),
                detached=fields.get("detached") == "true",
                ranks=tuple(
                    Program(map(parse_item, value.split()))
                    for key, value in fields.items()
                    if key.startswith("rank ")
                ),
                placement=tuple(
                    tuple(map(int, value.split()))
                    for key, value in fields.items()
                    if key.startswith("placement@")
                ),
                edges=None if edges is None else tuple(_edge(pair) for pair in edges.split()),
            )
        except KeyError as missing:
            raise InputError("schedule text", [f"the line '{missing.args[0]}: …' is missing"]) from None
        except InputError:
            raise
        except ValueError as error:
            raise InputError("schedule text", [f"a number cannot be read: {error}"]) from None

    def to_json(self) -> str:
        """The whole schedule as one JSON object, its actions in text form."""
        return json.dumps(
            {
                "name": self.name,
                "stages": self.num_stages,
                "micro_batches": self.num_micro_batches,
                "lowered": self.lowered,
                "updates": self.num_updates,
                "detached": self.detached,
                "placement": self.placement,
                "edges": self.stage_edges,
                "ranks": [rank.texts() for rank in self.ranks],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Reads ``to_json``."""
        read = json.loads(text)
        return cls(
            name=read["name"],
            num_stages=read["stages"],
            num_micro_batches=read["micro_batches"],
            lowered=read["lowered"],
            num_updates=read.get("updates", 1),
            detached=read.get("detached", False),
            placement=tuple(map(tuple, read["placement"])),
            edges=tuple((source, target) for source, target in read["edges"]),
            ranks=tuple(Program(map(parse_item, rank)) for rank in read["ranks"]),
        )


def _edge(text: str) -> tuple[int, int]:
    source, _, target = text.partition(">")
    return int(source), int(target)
