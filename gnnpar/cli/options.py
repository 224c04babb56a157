"""What a subcommand takes beside configuration keys: `format=json` and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnnpar.config.suggest import nearest
from gnnpar.errors import InputError

__all__ = ["FORMAT", "split_options", "wants_help"]

FORMAT = {"format": ("table", "json")}
"""The option of every command that prints a table."""


def wants_help(argv: Sequence[str]) -> bool:
    """True where the user asks for help."""
    return any(argument in ("-h", "--help", "help") for argument in argv)


def split_options(
    argv: Sequence[str], options: Mapping[str, Sequence[str]] = FORMAT
) -> tuple[dict[str, str], list[str]]:
    """The options' values (the first choice by default; any text where there are none), and the rest."""
    values = {name: choices[0] if choices else "" for name, choices in options.items()}
    rest = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        if not equals or name not in options:
            rest.append(argument)
        elif options[name] and value not in options[name]:
            choices = ", ".join(options[name])
            raise InputError(
                name, [f"there is no {name} {value!r}; choose {choices}{nearest(value, options[name])}"]
            )
        else:
            values[name] = value
    return values, rest
