"""Where every moment of every rank went: `attribute` splits epochs into categories that add up to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnnpar.trace.durations import Work, alike, even_chunks
from gnnpar.trace.replay import Replay, free
from gnnpar.trace.timeline import Epoch, Op, Step, steps_of

__all__ = ["CATEGORIES", "GROUPS", "Breakdown", "attribute", "category_of", "group_of"]

CATEGORIES = (
    "aggregation forward",
    "aggregation backward",
    "row-wise forward",
    "row-wise backward",
    "weight gradients",
    "communication stage",
    "communication halo",
    "communication feature",
    "communication weight",
    "communication history",
    "communication control",
    "bubble",
    "imbalance stage",
    "imbalance chunk",
    "optimizer",
    "input",
    "evaluation",
    "other",
)

GROUPS = ("compute", "communication", "bubble", "imbalance", "optimizer", "input", "evaluation", "other")

_WORK = {
    "aggregate": "aggregation forward",
    "aggregate back": "aggregation backward",
    "F": "row-wise forward",
    "B": "row-wise backward",
    "I": "row-wise backward",
    "W": "weight gradients",
    "halo": "communication halo",
    "REDUCE": "communication weight",
    "history": "communication history",
    "STEP": "optimizer",
    "input": "input",
    "sample": "input",
}
_ACTIONS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")


@dataclass(frozen=True)
class Breakdown:
    """Seconds of one rank in one epoch, or the mean over several, by category; they add up to `total`."""

    rank: int
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def group(self, name: str) -> float:
        """Seconds of a group, such as all of `communication`."""
        return sum(value for key, value in self.seconds.items() if group_of(key) == name)


def group_of(category: str) -> str:
    """The group of `GROUPS` that a category is in."""
    first = category.split(" ", 1)[0]
    return first if first in GROUPS else "compute"


def attribute(ranks: Sequence[Mapping[int, Epoch]]) -> list[Breakdown]:
    """The mean breakdown of every rank, over the epochs that all ranks have.

    A moment belongs to the innermost event around it. Work counts as its kind says (aggregation, row-wise …),
    whatever happens in an evaluation as evaluation. What is left is the waiting w of a rank in training
    steps, which is split by running each step again, the operations in their measured order (`Replay`):

    1. With a free network the rank waits w₁. **Communication** exposed is w - w₁, at least 0: what slow
       messages cost those who wait for them, and those who wait for these. The kinds of messages share it
       as they share the rank's waits (if it has none, all ranks' waits) for messages that were ready but not
       there. Packing and posting messages count as communication of their kind, too.
    2. With a free network, all ranks starting at once and all working as this one does (each action taking
       its mean of the kind), it waits w₂. **Bubble** is the smaller one of w₁ and w₂: what the schedule
       makes a rank wait even if all stages and micro-batches are alike.
    3. The rest of w₁ is **imbalance**: of **chunks** as far as it goes away (w₁ - w₃) when every action of a
       stage costs the mean over its micro-batches; of **stages**, ways and ranks otherwise.

    So the parts are never negative, and add up to the epoch exactly. The keys mirror GNNPipe's (Chen et al.
    2023): compute, communication of layers and of the graph, bubble of the pipeline and of imbalance,
    optimization, others; how it tells the two bubbles apart is not published.

    Cost: per step (ranks + 2) replays.
    """
    common = sorted(set.intersection(*(set(found) for found in ranks))) if ranks else []
    totals: list[defaultdict[str, float]] = [defaultdict(float) for _ in ranks]
    for number in common:
        of_epoch = [found[number] for found in ranks]
        for rank, epoch in enumerate(of_epoch):
            for op in epoch.ops:
                totals[rank][category_of(op)] += op.seconds
        for step in steps_of(of_epoch):
            for rank, waits in enumerate(_waits(step)):
                for category, seconds in waits.items():
                    totals[rank][category] += seconds
                    totals[rank]["waiting"] -= seconds
    breakdowns = []
    for epochs, total in zip(ranks, totals, strict=True):
        total["other"] += total.pop("waiting", 0.0)  # in steps that are not complete on all ranks
        of_rank = next(iter(epochs.values())).rank if epochs else 0
        mean = {category: total[category] / max(1, len(common)) for category in CATEGORIES}
        breakdowns.append(Breakdown(of_rank, mean))
    return breakdowns


def category_of(op: Op) -> str:
    """The category of an operation; "waiting" for the waits of a training step."""
    if op.part == "evaluation":
        return "evaluation"
    kind = op.event.kind
    if kind == "wait":
        return "waiting" if op.part == "step" else "other"
    if kind in _ACTIONS:
        return "communication stage"
    if kind in ("send", "post"):
        return _communication(op.event.text)
    return _WORK.get(kind, "other")


def _communication(kind: str) -> str:
    category = f"communication {kind}"
    return category if category in CATEGORIES else "communication control"


def _waits(step: Step) -> list[dict[str, float]]:
    """The waiting of every rank in a step, by category."""
    replay = Replay(step)
    ranks = range(len(step.ranks))
    network = [replay.network_s(rank) for rank in ranks]
    all_network = _sum(network)
    waiting = [sum(op.seconds for op in ops if op.what == "wait") for ops in step.ranks]
    unhindered = replay.waits(replay.run(replay.measured, free))
    costs = [Work(ops) for ops in step.ranks]
    even = replay.waits(replay.run(even_chunks(step, costs), free))
    found = []
    for rank in ranks:
        first = min(waiting[rank], unhindered[rank])
        as_own = replay.run(alike(step, costs, costs[rank]), free, [0.0] * len(step.ranks))
        bubble = min(first, replay.waits(as_own)[rank])
        imbalance = first - bubble
        chunk = min(imbalance, max(0.0, first - even[rank]))
        parts = {"bubble": bubble, "imbalance chunk": chunk, "imbalance stage": imbalance - chunk}
        shares = network[rank] if sum(network[rank].values()) > 0 else all_network
        for kind, share in _shares(shares).items():
            category = _communication(kind)
            parts[category] = parts.get(category, 0.0) + share * (waiting[rank] - first)
        found.append(parts)
    return found


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    if total <= 0:
        return {"control": 1.0}
    return {kind: value / total for kind, value in seconds.items()}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for key, value in part.items():
            total[key] += value
    return dict(total)
