"""The runs of the accuracy table: models on graphs, and what each is trained with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CASES", "CHUNKS", "EVAL_EVERY", "VARIANTS", "Case", "Run", "list_runs"]

CHUNKS = 8
EVAL_EVERY = 5
GCNII = ("model=gcnii", "model.alpha=0.1", "train.lr=0.01", "train.weight_decay=5e-4", "train.select=loss")
RESGCN = (
    *("model=resgcn", "model.num_layers=16", "model.hidden=64", "model.dropout=0.5"),
    *("train.lr=0.01", "train.weight_decay=5e-4"),
)
# With lr .01 and dropout .5, without LayerNorm, full batch does not learn either: 24% on Cora.
GCN = (
    *("model=gcn", "model.num_layers=32", "model.hidden=64", "model.dropout=0", "model.norm=layer"),
    *("train.lr=3e-4", "train.weight_decay=0", "train.grad_clip=1"),
)


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        published: test accuracy in percent, as published.
        num_epochs: at most; early stopping may end a run before.
        patience: epochs without a better validation accuracy (`train.select=loss`: loss) after which to stop.
        splits: the seed chooses the split too.
        variants: of `VARIANTS`; all where empty.
    """

    label: str
    dataset: str
    overrides: tuple[str, ...]
    num_epochs: int
    patience: int = 100
    published: str = "–"
    splits: bool = False
    variants: tuple[str, ...] = ()


def _gcnii(layers: int, hidden: int, dropout: float, theta: float, conv_decay: float) -> tuple[str, ...]:
    """GCNII with the hyper-parameters of its paper (table 5)."""
    shape = (f"model.num_layers={layers}", f"model.hidden={hidden}")
    tuned = (f"model.dropout={dropout}", f"model.theta={theta}", f"train.conv_weight_decay={conv_decay}")
    return (*GCNII, *shape, *tuned)


CASES = {
    "cora": Case("Cora, GCNII 64 × 64", "cora", _gcnii(64, 64, 0.6, 0.5, 0.01), 1500, published="85.5 ± 0.5"),
    "citeseer": Case(
        "Citeseer, GCNII 32 × 256",
        "citeseer",
        _gcnii(32, 256, 0.7, 0.6, 0.01),
        1500,
        published="73.4 ± 0.6",
        variants=("full batch", "γ = 1", "γ = 0", "γ = 2", "drop"),
    ),
    "pubmed": Case(
        "PubMed, GCNII 16 × 256",
        "pubmed",
        _gcnii(16, 256, 0.5, 0.4, 5e-4),
        1500,
        published="80.2 ± 0.4",
        variants=("full batch", "γ = 1", "γ = 0", "γ = 2", "drop"),
    ),
    "chameleon": Case("Chameleon, ResGCN+ 16 × 64", "chameleon", RESGCN, 1500, 200, splits=True),
    "squirrel": Case("Squirrel, ResGCN+ 16 × 64", "squirrel", RESGCN, 1500, 200, splits=True),
    "gcn": Case("Cora, plain GCN 32 × 64", "cora", GCN, 400, 400, variants=("full batch", "γ = 1", "drop")),
}

PIPE = ("system=gnnpipe", "parallel.stages=1", f"batch.num_chunks={CHUNKS}")
VARIANTS = {
    "full batch": ("system=full_batch",),
    "γ = 1": (*PIPE, "history.gamma=1"),
    "γ = 0": (*PIPE, "history.gamma=0"),
    "γ = 2": (*PIPE, "history.gamma=2"),
    "drop": (*PIPE, "history.mode=drop"),
    "snapshot(20)": (*PIPE, "history.mode=snapshot", "history.period=20"),
}


@dataclass(frozen=True)
class Run:
    """One training run: `overrides` say what is computed, `place` where on this machine."""

    case: str
    variant: str
    seed: int
    overrides: tuple[str, ...]
    place: tuple[str, ...]

    @property
    def key(self) -> str:
        """The same for runs that compute the same, on whatever machine."""
        return " ".join((self.case, self.variant, *self.overrides))


def list_runs(cases: Sequence[str], seeds: Sequence[int], data: Path, num_epochs: int | None) -> list[Run]:
    """All runs, in order of interest: full batch and γ = 1 come first, then seed by seed.

    Args:
        num_epochs: at most, in place of each case's own number.
    """

    def runs() -> Iterator[Run]:
        for name in cases:
            case = CASES[name]
            for variant in case.variants or VARIANTS:
                for seed in seeds:
                    common = (
                        *(f"dataset={case.dataset}", f"dataset.split={seed if case.splits else 0}"),
                        f"seed={seed}",
                        *(
                            f"train.num_epochs={num_epochs or case.num_epochs}",
                            f"train.patience={case.patience}",
                        ),
                        f"train.eval_every={EVAL_EVERY}",
                    )
                    place = f"dataset.path={data / case.dataset}.npz", "launch.threads=1"
                    overrides = (*VARIANTS[variant], *case.overrides, *common)
                    yield Run(name, variant, seed, overrides, (*place, "trace.tensorboard=false"))

    return sorted(runs(), key=lambda run: (run.variant not in ("full batch", "γ = 1"), run.seed))
