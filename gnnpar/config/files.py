"""A configuration as YAML text, and its short hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from gnnpar.config.schema import RunConfig
from gnnpar.config.section import build, dump
from gnnpar.errors import InputError

__all__ = ["config_hash", "from_yaml", "read_config", "to_yaml"]


def to_yaml(config: RunConfig) -> str:
    """Every key with its value; `from_yaml` gives the same configuration back.

    Of a dataset handed over in memory, which no reader made, only the name.
    """
    import yaml

    tree = dump(config)
    if config.dataset.kind == "memory":
        tree["dataset"] = {key: tree["dataset"][key] for key in ("name", "kind")}
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


def from_yaml(text: str, name: str = "configuration") -> RunConfig:
    """The configuration in YAML text; what is missing has its default. Raises `InputError`, titled `name`."""
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(name, [f"is not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(tree, Mapping):
        raise InputError(name, ["must be a mapping of keys to values"])
    try:
        return build(RunConfig, tree)
    except InputError as error:
        raise InputError(name, error.faults) from None


def read_config(path: str | os.PathLike[str]) -> RunConfig:
    """The configuration in a YAML file."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {file}", [f"cannot be read: {error}"]) from error
    return from_yaml(text, f"configuration {file}")


def config_hash(config: RunConfig) -> str:
    """Eight hex digits of everything but `run`: equal for runs that should give equal results."""
    import yaml

    tree = dump(config)
    del tree["run"]
    return hashlib.sha256(yaml.safe_dump(tree).encode()).hexdigest()[:8]
