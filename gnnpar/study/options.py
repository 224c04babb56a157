"""`SweepConfig`: the keys `sweep.*`, which say how a sweep runs its jobs; no job sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from gnnpar.config.constraints import Above, AtLeast
from gnnpar.config.section import Section
from gnnpar.config.suggest import nearest
from gnnpar.errors import InputError

__all__ = ["SweepConfig", "read_options"]


@dataclass(frozen=True, kw_only=True)
class SweepConfig(Section):
    """How the jobs of a sweep run."""

    section: ClassVar[str] = "sweep"

    dir: str | None = None
    """Folder of the jobs' run directories; null: results/sweeps/<hash of the jobs>."""
    jobs: Annotated[int, AtLeast(1)] | None = None
    """Jobs at a time, at most; null: as many as the cores allow, one thread a process."""
    cores: Annotated[int, AtLeast(1)] | None = None
    """Cores for all jobs together; null: those of this machine. A job needs processes × threads."""
    memory_gb: Annotated[float, Above(0)] | None = None
    """Memory for all jobs together, in GiB; null: not watched. A job that alone needs more is ended."""


def read_options(values: Mapping[str, str]) -> SweepConfig:
    """The options from texts by dotted key. Raises `InputError` with every fault at once."""
    import yaml

    known = {f"sweep.{field.name}": field.name for field in fields(SweepConfig)}
    faults = [
        f"{key}: there is no such key{nearest(key, known) or '; `gnnpar sweep --help` lists them'}"
        for key in values
        if key not in known
    ]
    plain: dict[str, Any] = {}
    for key, text in values.items():
        try:
            plain[key] = yaml.safe_load(text) if key != "sweep.dir" else text or None
        except yaml.YAMLError:
            plain[key] = text
    try:
        options = SweepConfig(**{known[key]: value for key, value in plain.items() if key in known})
    except InputError as error:
        raise InputError("sweep", [*faults, *error.faults]) from None
    if faults:
        raise InputError("sweep", faults)
    return options
