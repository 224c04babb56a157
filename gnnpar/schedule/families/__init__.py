"""Schedule families, one file each: a pure function of counts to a Schedule, and the ``FAMILY`` of it.

A new file here is a new family: the registry lists the modules of this package.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from gnnpar.schedule.families._family import Family

__all__ = ["FAMILIES", "Family"]


def _discover() -> dict[str, Family]:
    names = sorted(info.name for info in iter_modules(__path__) if not info.name.startswith("_"))
    families: dict[str, Family] = {}
    for name in names:
        family: Family = import_module(f"{__name__}.{name}").FAMILY
        families[family.name] = family
    return families


FAMILIES = MappingProxyType(_discover())
