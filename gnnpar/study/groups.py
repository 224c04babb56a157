"""`group`: runs that differ in their seed only, mean and deviation over seeds, and what tells groups apart.

OGB's rule (ogb.stanford.edu/docs/leader_overview): mean and unbiased standard deviation over ten seeds (three
for ogbn-papers100M) of the test and the validation metric, the number of parameters, and the command.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnpar.config import compose, dump_flat
from gnnpar.errors import InputError
from gnnpar.study.budget import seedless_hash
from gnnpar.study.runs import Run, drop_keys
from gnnpar.train.rundir import dataset_title

__all__ = ["Group", "Spread", "group", "telling_keys"]

LEADING = ("dataset.name", "system", "model.name")
OGB_RUNS = {"ogbn-papers100M": 3}


@dataclass(frozen=True)
class Spread:
    """Mean and unbiased standard deviation (NaN of one value) of the values that are known, not NaN."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return cls(math.nan, math.nan)
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else math.nan)


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only, by seed.

    Attributes:
        keys: value of every key of the configuration but `seed` and `run.*`, by dotted name.
    """

    runs: tuple[Run, ...]
    keys: dict[str, Any]

    @property
    def title(self) -> str:
        """What people call the dataset."""
        return dataset_title(self.runs[0].config)

    @property
    def metric(self) -> str:
        return str(self.runs[0].summary["metric"])

    @property
    def seeds(self) -> list[int]:
        return [run.config.seed for run in self.runs]

    @property
    def num_ranks(self) -> int:
        return max(run.num_ranks for run in self.runs)

    @property
    def num_parameters(self) -> int:
        return int(self.runs[0].summary["num_parameters"])

    @property
    def memory(self) -> int:
        """The largest peak of all ranks together, in bytes."""
        return max(run.memory for run in self.runs)

    def spread(self, field: str) -> Spread:
        """Of a field of the summary."""
        return Spread.of(float(run.summary[field]) for run in self.runs)

    @property
    def missing_runs(self) -> int:
        """How many more OGB's rule asks for; 0 for other datasets."""
        name = self.keys["dataset.name"]
        return max(0, OGB_RUNS.get(name, 10) - len(self.runs)) if name.startswith("ogbn-") else 0

    @property
    def command(self) -> str:
        """The command that trains these runs again, all seeds of them."""
        own = ("run.dir", "run.overwrite", "format", "seed")
        words = drop_keys(self.runs[0].command, own)
        if words[:2] != ["gnnpar", "train"]:  # of a Python script
            return shlex.join(self.runs[0].command)
        seeds = ",".join(map(str, self.seeds))
        if len(self.runs) > 1:
            words[1] = "sweep"
        return shlex.join([*words, *([f"seed={seeds}"] if seeds != "0" else [])])


def group(runs: Iterable[Run]) -> list[Group]:
    """Groups in the order of their first runs."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(seedless_hash(run.config), []).append(run)
    return [
        Group(tuple(sorted(same, key=lambda run: run.config.seed)), _keys(same[0])) for same in found.values()
    ]


def telling_keys(groups: Sequence[Group]) -> list[str]:
    """Keys whose values differ between groups: names first, then all that presets do not already tell.

    Where every group has what its own preset says, a key is left out: the name of the system says it.
    """
    differing = [key for key in groups[0].keys if len({_frozen(one.keys[key]) for one in groups}) > 1]
    leading = [key for key in LEADING if key in differing]
    presets = [_preset(one) for one in groups]
    own = [
        key
        for key in differing
        if key not in leading
        and any(
            _frozen(one.keys[key]) != _frozen(said.get(key))
            for one, said in zip(groups, presets, strict=True)
        )
    ]
    return leading + own


def _keys(run: Run) -> dict[str, Any]:
    flat = dump_flat(run.config)
    return {
        key: value for key, value in flat.items() if key != "seed" and not key.startswith(("run.", "trace."))
    }


def _preset(one: Group) -> dict[str, Any]:
    """What the group's dataset, model and system say by themselves; nothing where there is no such preset."""
    names = {"dataset": "dataset.name", "model": "model.name", "system": "system"}
    try:
        return dump_flat(compose([f"{choice}={one.keys[key]}" for choice, key in names.items()]))
    except InputError:
        return {}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
