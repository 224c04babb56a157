"""DGL beside a recent torch: `dgl.graphbolt` loads a library built for older ones, and is not needed here."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType
from typing import Any

from torch import nn

from gnnpar.errors import InputError

__all__ = ["import_dgl", "is_dgl_conv"]


def import_dgl() -> Any:
    """The module `dgl`, its graphbolt replaced by an empty module unless DGL is imported already.

    Raises:
        InputError: DGL is not installed.
    """
    if "dgl" in sys.modules:
        return sys.modules["dgl"]
    sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    # Without a backend named, DGL asks for one on the screen and writes a file into the user's home.
    unset = "DGLBACKEND" not in os.environ
    try:
        if unset:
            os.environ["DGLBACKEND"] = "pytorch"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("dgl")
    except ImportError as error:
        raise InputError("dgl", [f"cannot be imported ({error}); install gnnpar[dgl]"]) from error
    finally:
        if unset:
            os.environ.pop("DGLBACKEND", None)


def is_dgl_conv(module: nn.Module) -> bool:
    """True for the convolutions of `dgl.nn`, without importing DGL."""
    return any(base.__module__.startswith("dgl.nn.pytorch.conv") for base in type(module).__mro__)
