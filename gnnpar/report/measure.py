"""What a run's trace tells: breakdown, one step in detail, its critical path, what-if, prediction, bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gnnpar.report.predict import Prediction, micro_batches, predict
from gnnpar.report.run import RunRecord
from gnnpar.trace import Log
from gnnpar.trace.attribution import Breakdown, attribute
from gnnpar.trace.critical import PathPiece, WhatIf, critical_path, what_if
from gnnpar.trace.timeline import Epoch, Step, epochs, steps_of

__all__ = ["Measured", "measure"]

MOST_EPOCHS = 40
"""More epochs than this are sampled evenly: a breakdown does not get better by reading thousands."""
MOST_EVENTS = 400_000


@dataclass(frozen=True)
class Measured:
    """What a trace tells of a run.

    Attributes:
        epochs: numbers of the epochs that the means are over.
        breakdown: of every rank, the mean over these epochs.
        epoch: the number of the epoch of `step`, of middling length.
        step: its first training step.
        path: the critical path of `step`.
        sent: mean bytes of an epoch by (kind, from, to); messages likewise.
        memory: (epoch, resident bytes) of every rank.
    """

    epochs: list[int]
    breakdown: list[Breakdown]
    epoch: int
    step: Step
    path: list[PathPiece]
    what_if: WhatIf
    prediction: Prediction | None
    sent: dict[tuple[str, int, int], float]
    messages: dict[tuple[str, int, int], float]
    memory: list[list[tuple[int, int]]]


def measure(run: RunRecord) -> Measured | None:
    """Analyse a run's trace; None where there is none, or no epoch that all ranks have finished.

    The first epochs compile kernels and fill caches, and the last one waits for the end of the run: they are
    left out where there are enough others.
    """
    chosen = _chosen(run.logs)
    found = [epochs(log, chosen) for log in run.logs]
    common = sorted(set.intersection(*(set(of_rank) for of_rank in found))) if found else []
    if not common:
        return None
    of_epochs = {number: [of_rank[number] for of_rank in found] for number in common}
    shown, step = _middling(of_epochs)
    if step is None:
        return None
    sent, messages = _sent(run.logs)
    return Measured(
        epochs=common,
        breakdown=attribute(found),
        epoch=shown,
        step=step,
        path=critical_path(step),
        what_if=what_if(step),
        prediction=_prediction(run, of_epochs, shown, step),
        sent=sent,
        messages=messages,
        memory=[
            [(note["epoch"], note["resident_bytes"]) for note in log.notes if note.get("resident_bytes")]
            for log in run.logs
        ],
    )


def _chosen(logs: Sequence[Log]) -> list[int]:
    """Epochs that all ranks have, without the first two and the last where others remain, evenly sampled."""
    if not logs:
        return []
    numbers = sorted(set.intersection(*({int(note["epoch"]) for note in log.notes} for log in logs)))
    each = sum(len(log.events) for log in logs) / max(1, len(numbers))
    numbers = numbers[2:-1] if len(numbers) > 4 else numbers
    most = max(1, min(MOST_EPOCHS, int(MOST_EVENTS / max(each, 1.0))))
    if len(numbers) <= most:
        return numbers
    return [numbers[place * len(numbers) // most] for place in range(most)]


def _middling(of_epochs: dict[int, list[Epoch]]) -> tuple[int, Step | None]:
    """The first step of the epoch whose first step is of middling length."""
    lengths = []
    for number, ranks in of_epochs.items():
        steps = steps_of(ranks)
        if steps and all(steps[0].ranks):
            start = min(ops[0].start for ops in steps[0].ranks)
            lengths.append((max(ops[-1].end for ops in steps[0].ranks) - start, number, steps[0]))
    if not lengths:
        return 0, None
    lengths.sort(key=lambda entry: entry[:2])
    _, number, step = lengths[len(lengths) // 2]
    return number, step


def _prediction(
    run: RunRecord, of_epochs: dict[int, list[Epoch]], shown: int, step: Step
) -> Prediction | None:
    """Of the shown step by the costs of the others, where they run the schedule's own micro-batches."""
    schedule = run.schedule
    if schedule is None or micro_batches(step) != schedule.num_micro_batches:
        return None
    others = [
        one
        for number, ranks in of_epochs.items()
        for one in steps_of(ranks)[:1]
        if number != shown and micro_batches(one) == schedule.num_micro_batches
    ]
    return predict(schedule, run.twice, step, others or [step], run.columns)


def _sent(
    logs: Sequence[Log],
) -> tuple[dict[tuple[str, int, int], float], dict[tuple[str, int, int], float]]:
    sizes: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    counts: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    for log in logs:
        for note in log.notes:
            for kind, peer, size, count in note.get("sent", ()):
                sizes[kind, log.rank, peer] += size / len(log.notes)
                counts[kind, log.rank, peer] += count / len(log.notes)
    return dict(sizes), dict(counts)
