"""Where the files shipped beside the code lie: config groups and dataset cards."""

from __future__ import annotations

from pathlib import Path

from gnnpar.errors import RunError

__all__ = ["resource_dir"]


def resource_dir(name: str) -> Path:
    """Folder `name` (`configs` or `datasets`): inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise RunError(f"the folder {name!r} is missing from this installation of gnnpar: install it again")
