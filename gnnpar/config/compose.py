"""`compose`: config groups and `key=value` overrides, as on the command line, into a checked `RunConfig`.

Hydra's compose API does groups and the override grammar; its decorator, logging and directories are not used.
Misspelt keys, groups and values are reported here, all at once, in our words.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnpar.config.files import config_hash, from_yaml, read_config, to_yaml
from gnnpar.config.resources import resource_dir
from gnnpar.config.schema import RunConfig
from gnnpar.config.section import build, dump, key_kinds, sections, unknown_key
from gnnpar.config.suggest import nearest
from gnnpar.errors import InputError

__all__ = ["compose", "config_hash", "from_yaml", "group_choices", "read_config", "to_yaml"]


def group_choices(configs: Path | None = None) -> dict[str, list[str]]:
    """Names to choose from in each config group: `dataset`, `model`, `system`, …"""
    root = configs or resource_dir("configs")
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir() and folder.name != "sweep")
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def compose(overrides: Iterable[str] = (), *, configs: Path | None = None) -> RunConfig:
    """The run that `overrides` describe, on top of `configs/config.yaml`.

    Args:
        overrides: `GROUP=NAME` (such as `model=gcnii`, `system=gnnpipe`) or `KEY=VALUE` (`train.lr=0.1`).
        configs: folder of the config groups; the one shipped with gnnpar by default.

    Raises:
        InputError: with every faulty override at once.
    """
    root = configs or resource_dir("configs")
    groups, values, faults = _sort_overrides(overrides, group_choices(root))
    try:
        tree = _merge(root, groups, values)
    except InputError as error:
        raise InputError(error.title, [*faults, *error.faults]) from error
    return build(RunConfig, tree, faults)


def _sort_overrides(
    overrides: Iterable[str], choices: Mapping[str, list[str]]
) -> tuple[list[str], dict[str, Any], list[str]]:
    """Group choices (as Hydra takes them), values by dotted key, and faults."""
    groups: list[str] = []
    values: dict[str, Any] = {}
    faults: list[str] = []
    for text in _without_dashes(overrides, faults):
        key, equals, value = text.partition("=")
        key = key.strip().lstrip("+")
        if not equals and key in key_kinds(RunConfig):
            faults.append(
                f"{key}: has no value; overrides are written key=value, as in {key}={_default(key)}"
            )
        elif not equals or not key:
            faults.append(f"{text}: overrides are written key=value{nearest(text, _names(choices))}")
        elif key in choices and value in choices[key]:
            groups.append(f"{key}={value}")
        elif key in choices:
            faults.append(
                f"{key}: there is no {key} {value!r}; choose one of {', '.join(choices[key])}"
                f"{nearest(value, choices[key])}"
            )
        elif key not in key_kinds(RunConfig):
            faults.append(unknown_key(RunConfig, key))
        else:
            try:
                values[key] = _parse(key, value)
            except ValueError as error:
                faults.append(f"{key}: cannot read the value {value!r}: {error}")
    return groups, values, faults


def _without_dashes(overrides: Iterable[str], faults: list[str]) -> Iterator[str]:
    """What is left without `--name=value` and `--name value`, which are answered with the nearest key."""
    left = list(overrides)
    while left:
        text = left.pop(0)
        if not text.startswith("-"):
            yield text
            continue
        name, _, value = text.lstrip("-").partition("=")
        if not value and left and "=" not in left[0] and not left[0].startswith("-"):
            value = left.pop(0)
            text = f"{text} {value}"
        keys = {key.rpartition(".")[2]: key for key in reversed(key_kinds(RunConfig))}
        near = difflib.get_close_matches(name.replace("-", "_"), keys, n=1)
        cure = f"; write {keys[near[0]]}={value or _default(keys[near[0]])}" if near else ""
        faults.append(f"{text}: there are no options, overrides are written key=value{cure}")


def _default(key: str) -> Any:
    value: Any = RunConfig()
    for part in key.split("."):
        value = getattr(value, part)
    return "VALUE" if value is None else value


def _names(choices: Mapping[str, list[str]]) -> list[str]:
    return [*choices, *sections(RunConfig), *key_kinds(RunConfig)]


def _parse(key: str, value: str) -> Any:
    """A value in Hydra's grammar; where the key holds text, what is not in the grammar stands for itself."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    holds_text = "str" in str(key_kinds(RunConfig).get(key, ""))
    try:
        override = OverridesParser.create().parse_override(f"key={value}")
        parsed = override.value()
    except HydraException as error:
        if holds_text:
            return value
        raise ValueError(" ".join(str(error).split())) from error
    if override.is_sweep_override() or isinstance(parsed, Glob):
        if holds_text:
            return value
        raise ValueError("one run has one value")
    return parsed


def _merge(root: Path, groups: list[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults, then groups, then values, with interpolations resolved."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(root.resolve()), version_base="1.3"):
            composed = hydra_compose("config", groups)
        OmegaConf.set_struct(composed, False)
        merged = OmegaConf.merge(dump(RunConfig()), composed)
        for key, value in values.items():
            OmegaConf.update(merged, key, value, merge=False)
        tree = OmegaConf.to_container(merged, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError("configuration", [" ".join(str(error).split())]) from error
    if not isinstance(tree, dict):
        raise InputError("configuration", [f"{root}/config.yaml must be a mapping"])
    return {str(key): value for key, value in tree.items()}
