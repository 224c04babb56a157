"""The nearest known name to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[object]) -> str:
    """`"; did you mean NAME?"`, or nothing where no name is near."""
    found = difflib.get_close_matches(word, [str(name) for name in known], n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
