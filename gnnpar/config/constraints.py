"""What a field of the configuration may hold, and how a plain value (from YAML or a command line) becomes it.

A field is declared as `name: Annotated[int, AtLeast(1)] = 2`; choices are `Literal[...]`, optional values
`... | None`, sequences `tuple[X, ...]` or `tuple[X, Y]`.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin

from gnnpar.config.suggest import nearest

__all__ = ["Above", "AtLeast", "Between", "BadValue", "Matches", "convert", "describe"]


class BadValue(Exception):
    """A value that a field cannot hold; the text completes "train.lr: …"."""


class Constraint(Protocol):
    def __call__(self, value: Any) -> bool: ...
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class AtLeast:
    low: float

    def __call__(self, value: Any) -> bool:
        return bool(value >= self.low)

    def __str__(self) -> str:
        return f"at least {self.low:g}"


@dataclass(frozen=True)
class Above:
    low: float

    def __call__(self, value: Any) -> bool:
        return bool(value > self.low)

    def __str__(self) -> str:
        return "positive" if self.low == 0 else f"above {self.low:g}"


@dataclass(frozen=True)
class Between:
    """low ≤ value ≤ high, or < high where `open_end`."""

    low: float
    high: float
    open_end: bool = False

    def __call__(self, value: Any) -> bool:
        return bool(self.low <= value and (value < self.high if self.open_end else value <= self.high))

    def __str__(self) -> str:
        return f"at least {self.low:g} and {'below' if self.open_end else 'at most'} {self.high:g}"


@dataclass(frozen=True)
class Matches:
    """Text that is one of `names`, or a name followed by `:` and a number."""

    names: tuple[str, ...]

    def __call__(self, value: Any) -> bool:
        name, colon, index = value.partition(":")
        return name in self.names and (not colon or index.isdecimal())

    def __str__(self) -> str:
        return " or ".join(self.names)


def convert(value: Any, kind: Any) -> Any:
    """`value` as the annotation `kind` wants it; raises `BadValue` otherwise.

    Integers pass for numbers, never the other way; text passes for a number where it is written like one
    (YAML 1.1 reads `1e-3` as text).
    """
    origin = get_origin(kind)
    if origin is tuple:
        return _convert_tuple(value, get_args(kind))
    if origin is Annotated:
        base, *constraints = get_args(kind)
        converted = convert(value, base)
        for constraint in constraints:
            if not constraint(converted):
                raise BadValue(f"must be {constraint}, got {value!r}")
        return converted
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(kind))
    if origin is Literal:
        return _convert_choice(value, get_args(kind))
    return _convert_scalar(value, kind)


def describe(kind: Any) -> str:
    """The annotation in a user's words, e.g. `integer, at least 1`."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *constraints = get_args(kind)
        return ", ".join([describe(base), *map(str, constraints)])
    if origin in (Union, types.UnionType):
        inner = [describe(one) for one in get_args(kind) if one is not type(None)]
        return ", or ".join(inner + ["null"] * (type(None) in get_args(kind)))
    if origin is Literal:
        return " \\| ".join(map(str, get_args(kind)))
    if origin is tuple:
        inner, *rest = get_args(kind)
        return f"list of {describe(inner)}" if rest == [...] else f"{1 + len(rest)} × {describe(inner)}"
    return _NAMES[kind]


_NAMES = {int: "integer", float: "number", bool: "true or false", str: "text"}


def _convert_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    """One of `kinds`: none, a list, or a plain value; at most one of each."""
    if value is None and type(None) in kinds:
        return None
    many = isinstance(value, (list, tuple))
    known = [kind for kind in kinds if kind is not type(None)]
    fitting = [kind for kind in known if many == (get_origin(kind) is tuple)]
    try:
        return convert(value, (fitting or known)[0])
    except BadValue as error:
        if len(known) == 1:
            raise
        raise BadValue(f"{error} (it takes: {', or '.join(map(describe, known))})") from None


def _convert_scalar(value: Any, kind: type) -> Any:
    if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind is float and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        article = "an" if kind is int else "a"
        wanted = _NAMES[kind] if kind in (bool, str) else f"{article} {_NAMES[kind]}"
        raise BadValue(f"must be {wanted}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(f"must be a finite number, got {value!r}")
    return value


def _convert_choice(value: Any, choices: Sequence[Any]) -> Any:
    if value in choices:
        return value
    raise BadValue(
        f"must be one of {', '.join(map(str, choices))}; got {value!r}{nearest(str(value), choices)}"
    )


def _convert_tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadValue(f"must be a list, such as [1, 2], got {value!r}")
    if len(kinds) == 2 and kinds[1] is ...:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise BadValue(f"must be a list of {len(kinds)} values, got {len(value)}")
    return tuple(convert(one, kind) for one, kind in zip(value, kinds, strict=True))
