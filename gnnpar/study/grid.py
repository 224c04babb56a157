"""The override grammar of a sweep: which jobs `seed=range(3) system=gnnpipe,gpipe` stands for.

Hydra's grammar: `a,b`, `choice(a,b)` and `range(start,stop[,step])` (`stop` excluded) are choices, `[a,b]` is
one value, and quoted text is one value, commas included.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnpar.config import RunConfig, compose, config_hash
from gnnpar.config.resources import resource_dir
from gnnpar.config.suggest import nearest
from gnnpar.errors import Faults, InputError
from gnnpar.study.options import SweepConfig, read_options

__all__ = ["MOST_JOBS", "Grid", "Job", "expand", "read_grid"]

MOST_JOBS = 1000
"""More is a typing mistake: each configuration is checked before the first job starts, 0.1 s each."""

_OWN_KEYS = ("run.dir", "run.overwrite")


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        overrides: as `gnnpar train` takes them, without `run.*`.
        varied: those of them that differ between the jobs of the sweep.
        hash: of the configuration (`config_hash`): by it, a finished run is found again.
    """

    overrides: tuple[str, ...]
    varied: tuple[str, ...]
    config: RunConfig
    hash: str

    @property
    def label(self) -> str:
        """What tells it from the others, in a line."""
        return " ".join(self.varied) or self.config.system


@dataclass(frozen=True)
class Grid:
    """Choices by key, in the order given, the last varying fastest.

    Attributes:
        words: what was given and is no override, for `compose` to refuse.
        faults: of what is left out here.
    """

    options: SweepConfig
    axes: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...]
    faults: tuple[str, ...] = ()


def read_grid(arguments: Iterable[str]) -> Grid:
    """Take the command line apart: options `sweep.*`, a file `sweep=NAME|FILE`, and choices by key.

    What the command line gives wins over the file. Nothing is raised: `expand` has more faults to tell.
    """
    faults = Faults("sweep")
    given, words = _pairs(arguments)
    file = given.pop("sweep", None)
    if file is not None:
        with faults.collected():
            given = read_file(file) | given
    options = SweepConfig()
    try:
        options = read_options({key: given.pop(key) for key in [*given] if key.startswith("sweep.")})
    except InputError as error:
        faults.extend(error.faults)
    faults.extend(
        f"{key}: the sweep gives every job a directory of its own; choose sweep.dir"
        for key in _OWN_KEYS
        if given.pop(key, None) is not None
    )
    axes = {}
    for key, text in given.items():
        try:
            axes[key] = choices(text)
        except ValueError as error:
            faults.add(f"{key}: {error}")
    number = math.prod(map(len, axes.values()))
    if number > MOST_JOBS:
        counts = " × ".join(f"{len(values)} ({key})" for key, values in axes.items() if len(values) > 1)
        faults.add(f"{counts} = {number} jobs, but a sweep has at most {MOST_JOBS}; split it up")
        axes = {key: values[:1] for key, values in axes.items()}
    return Grid(options, axes, tuple(words), tuple(faults))


def choices(text: str) -> tuple[str, ...]:
    """The values that a text stands for, each as an override takes it; a plain value stands for itself.

    Raises:
        ValueError: choices without end, or none.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import RangeSweep
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        override = OverridesParser.create().parse_override(f"key={text}")
        if not override.is_sweep_override():
            return (text,)
        swept: Any = override.value()
        if isinstance(swept, RangeSweep):
            _check_range(swept, text)
        found = tuple(itertools.islice(override.sweep_string_iterator(), MOST_JOBS + 1))
    except (HydraException, OmegaConfBaseException) as error:
        if "enumerate" in str(error):
            raise ValueError(
                f"{text} cannot be listed; give choices a,b or range(start,stop,step)"
            ) from error
        if isinstance(error, OmegaConfBaseException):
            raise ValueError(f"{text} cannot be listed; give either a range or choices a,b") from error
        return (text,)  # a path, or a mistake: `compose` knows
    return found


def _check_range(swept: Any, text: str) -> None:
    start, stop, step = float(swept.start), float(swept.stop), float(swept.step)
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        raise ValueError(f"{text} has no end; give range(start,stop,step) with a step other than 0")
    number = math.ceil((stop - start) / step)
    if number < 1:
        raise ValueError(f"{text} is empty; stop is not included, and a falling range has a negative step")
    if number > MOST_JOBS:
        raise ValueError(f"{text} has {number} values, but a sweep has at most {MOST_JOBS} jobs")


def expand(grid: Grid) -> list[Job]:
    """Every job once, its configuration composed and checked.

    Raises:
        InputError: all faults of all jobs; one that only some jobs have names the first of them.
    """
    jobs: dict[str, Job] = {}
    found: dict[str, list[str]] = {}
    total = 0
    for values in itertools.product(*grid.axes.values()):
        total += 1
        pairs = [(key, f"{key}={value}") for key, value in zip(grid.axes, values, strict=True)]
        overrides = tuple(text for _, text in pairs)
        varied = tuple(text for key, text in pairs if len(grid.axes[key]) > 1)
        try:
            config = compose([*overrides, *grid.words])
        except InputError as error:
            for fault in error.faults:
                found.setdefault(fault, []).append(" ".join(varied))
            continue
        key = config_hash(config)
        jobs.setdefault(key, Job(overrides, varied, config, key))
    raise_faults(found, total, grid.faults)
    return list(jobs.values())


def raise_faults(found: Mapping[str, Sequence[str]], total: int, before: Sequence[str] = ()) -> None:
    """Raise `InputError` with every fault, if any.

    Args:
        found: labels of the jobs that have a fault, by fault.
        total: how many jobs there are.
        before: faults that no job has.
    """
    faults = list(before)
    for fault, labels in found.items():
        where = f" ({len(labels)} of {total} jobs, as {labels[0]})" if len(labels) < total else ""
        faults.append(f"{fault}{where}")
    if faults:
        raise InputError("sweep", faults)


def read_file(name: str) -> dict[str, str]:
    """A sweep in YAML, as texts of the command line: `KEY: VALUE`, with a list for choices.

    Args:
        name: of a file in `configs/sweep`, or a path that ends in .yaml or .yml.

    Raises:
        InputError: no such file, or a file of another form.
    """
    import yaml

    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        folder = resource_dir("configs") / "sweep"
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        if name not in known:
            text = f"there is no sweep {name!r}; choose {', '.join(known)} or a file FILE.yaml"
            raise InputError("sweep", [text + nearest(name, known)])
        path = folder / f"{name}.yaml"
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"sweep {path}", [f"cannot be read: {error}"]) from error
    except yaml.YAMLError as error:
        raise InputError(f"sweep {path}", [f"is not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(tree, Mapping):
        raise InputError(f"sweep {path}", ["must be a mapping of keys to values or lists of choices"])
    nested = [f"{key}: write KEY: VALUE, with dots in KEY" for key in tree if isinstance(tree[key], Mapping)]
    if nested:
        raise InputError(f"sweep {path}", nested)
    return {str(key): _as_text(value) for key, value in tree.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_element, value))
    return _element(value) if not isinstance(value, str) else value


def _element(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_element, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _pairs(arguments: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Texts by key, the last one given; and what is no KEY=VALUE."""
    given: dict[str, str] = {}
    words = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key or argument.startswith("-"):
            words.append(argument)
        else:
            given[key.strip()] = value
    return given, words
