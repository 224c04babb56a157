"""The runs of the table of naive chunks: two models, three ways to treat edges between 1 to 4 chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.experiments.accuracy_cases import EVAL_EVERY, GCNII, Run

__all__ = ["CASES", "CHUNKS", "VARIANTS", "NaiveCase", "NaiveRun", "list_runs"]

CHUNKS = (1, 2, 3, 4)


@dataclass(frozen=True)
class NaiveCase:
    """A model on PubMed, with what it is trained with."""

    label: str
    overrides: tuple[str, ...]
    num_epochs: int
    patience: int


CASES = {
    # The GAT is made by the script; these are its keys.
    "gat": NaiveCase(
        "GAT, 2 layers",
        ("model.num_layers=2", "train.lr=0.005", "train.weight_decay=5e-4"),
        300,
        300,
    ),
    "gcnii": NaiveCase(
        "GCNII, 16 × 64",
        (
            *GCNII,
            *("model.num_layers=16", "model.hidden=64", "model.dropout=0.5", "model.theta=0.4"),
            "train.conv_weight_decay=5e-4",
        ),
        500,
        100,
    ),
}

BY_NUMBER = ("partition.method=range", "partition.inner_order=none", "partition.cost_edge=0")
VARIANTS = {
    "by number": ("system=gpipe_naive",),
    "METIS": ("system=gpipe",),
    "METIS, history": ("system=gnnpipe", "history.gamma=1"),
    "by number, history": ("system=gnnpipe", "history.gamma=1", *BY_NUMBER),
}
"""Several chunks; one chunk is full batch, whatever the variant. Without history, cut edges are lost."""


@dataclass(frozen=True)
class NaiveRun(Run):
    """A run of this table; `case` and `variant` name those above."""

    chunks: int = 1


def list_runs(
    cases: Sequence[str], chunks: Sequence[int], seeds: Sequence[int], data: Path, num_epochs: int | None
) -> list[NaiveRun]:
    """All runs in order of interest: the first seed comes first, then model by model, fewest and most chunks
    before those between.

    Args:
        num_epochs: at most, in place of each case's own number.
    """

    def runs() -> Iterator[NaiveRun]:
        for seed in seeds:
            for name in cases:
                case = CASES[name]
                common = (
                    *case.overrides,
                    *("dataset=pubmed", f"seed={seed}", f"train.num_epochs={num_epochs or case.num_epochs}"),
                    *(f"train.patience={case.patience}", f"train.eval_every={EVAL_EVERY}"),
                )
                place = f"dataset.path={data}", "launch.threads=1", "trace.tensorboard=false"
                for count in chunks:
                    if count == 1:
                        keys = ("system=full_batch", *common)
                        yield NaiveRun(name, "full batch", seed, keys, place, 1)
                        continue
                    for variant, system in VARIANTS.items():
                        keys = (*system, "parallel.stages=1", f"batch.num_chunks={count}", *common)
                        yield NaiveRun(name, variant, seed, keys, place, count)

    names, ends = list(cases), (min(chunks), max(chunks))
    return sorted(
        runs(), key=lambda run: (run.seed != seeds[0], names.index(run.case), run.chunks not in ends)
    )
