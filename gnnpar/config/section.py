"""`Section`: base of the configuration's dataclasses, which checks itself; and plain trees of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

from gnnpar.config.constraints import BadValue, convert
from gnnpar.config.rules import cross_faults
from gnnpar.config.suggest import nearest
from gnnpar.errors import InputError

__all__ = ["Section", "build", "dump", "dump_flat", "key_kinds", "sections", "unknown_key"]

S = TypeVar("S", bound="Section")


@dataclass(frozen=True, kw_only=True)
class Section:
    """Checks its values when made, and holds them converted; raises `InputError` listing every faulty key."""

    section: ClassVar[str] = ""
    """Where the section stands in YAML, such as `train`; empty for the root."""

    def __post_init__(self) -> None:
        faults: list[str] = []
        prefix = f"{self.section}." if self.section else ""
        for name, kind in _hints(type(self)).items():
            if not _is_section(kind):
                value = _converted(prefix + name, getattr(self, name), kind, faults)
                object.__setattr__(self, name, value)
        if not self.section and not faults:
            faults += cross_faults(dump_flat(self))
        if faults:
            raise InputError("configuration", faults)


def build(root: type[S], tree: Mapping[str, Any], faults: Iterable[str] = ()) -> S:
    """The root section from a nested mapping of plain values; what is missing has its default.

    Raises `InputError` with every fault of every key at once, after those already found in `faults`.
    """
    found = list(faults)
    kinds = key_kinds(root)
    values = dump_flat(root())
    faulty: set[str] = set()
    for key, value in _flatten(tree, known=kinds).items():
        before = len(found)
        if key in kinds:
            converted = _converted(key, value, kinds[key], found)
        else:
            found.append(unknown_key(root, key))
        if len(found) > before:
            faulty.add(key)
        else:
            values[key] = converted
    found += cross_faults(values, faulty)
    if found:
        raise InputError("configuration", found)
    return _assemble(root, values)


def dump(config: Section) -> dict[str, Any]:
    """Nested plain values (lists for tuples), in the order of the schema."""
    plain: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if isinstance(value, Section):
            value = dump(value)
        plain[one.name] = list(value) if isinstance(value, tuple) else value
    return plain


def dump_flat(config: Section) -> dict[str, Any]:
    """Plain values by dotted name, in the order of the schema."""
    return _flatten(dump(config))


def key_kinds(root: type[Section]) -> dict[str, Any]:
    """Annotation of every key below `root`, by dotted name, in the order of the schema."""
    kinds: dict[str, Any] = {}
    for name, kind in _hints(root).items():
        if _is_section(kind):
            kinds |= {f"{name}.{key}": inner for key, inner in key_kinds(kind).items()}
        else:
            kinds[name] = kind
    return kinds


def sections(root: type[Section]) -> tuple[str, ...]:
    """Names of the sections of `root`."""
    return tuple(name for name, kind in _hints(root).items() if _is_section(kind))


def unknown_key(root: type[Section], key: str) -> str:
    """The fault of a key that does not exist, with the nearest one: by whole name, else by its last part."""
    kinds = key_kinds(root)
    if key in sections(root):
        return f"{key}: is a section; give its keys, such as {key}.{_first(kinds, key)}=..."
    hint = nearest(key, [*kinds, *sections(root)])
    last = key.rpartition(".")[2]
    same = [known for known in kinds if known.rpartition(".")[2] == last]
    if same:
        hint = f"; did you mean {' or '.join(same)}?"
    return f"{key}: there is no such key{hint or '; docs/configuration.md lists all keys'}"


def _hints(section: type[Section]) -> dict[str, Any]:
    hints = get_type_hints(section, include_extras=True)
    return {one.name: hints[one.name] for one in fields(section)}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _converted(key: str, value: Any, kind: Any, faults: list[str]) -> Any:
    try:
        return convert(value, kind)
    except BadValue as fault:
        faults.append(f"{key}: {fault}")
        return None


def _flatten(tree: Mapping[str, Any], prefix: str = "", known: Iterable[str] = ()) -> dict[str, Any]:
    """Values by dotted name. A mapping where a value belongs stays as it is, to be refused by name."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in known:
            flat |= _flatten(value, f"{key}.", known)
        else:
            flat[key] = value
    return flat


def _first(kinds: Mapping[str, Any], section: str) -> str:
    return next(key for key in kinds if key.startswith(f"{section}.")).partition(".")[2]


def _assemble(root: type[S], values: Mapping[str, Any], prefix: str = "") -> S:
    arguments = {
        name: _assemble(kind, values, f"{prefix}{name}.") if _is_section(kind) else values[f"{prefix}{name}"]
        for name, kind in _hints(root).items()
    }
    return root(**arguments)
