"""`load`: from a dataset's configuration to its graph."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from gnnpar.data.convert import Recipe, read_graph, write_graph
from gnnpar.data.sources import Source, find_source, fingerprint
from gnnpar.data.store import FORMAT_VERSION, Store, StoreWriter, cached
from gnnpar.errors import InputError
from gnnpar.graph.graph import Graph

if TYPE_CHECKING:
    from gnnpar.config.schema import DatasetConfig

__all__ = ["load", "load_store", "store_key"]

log = logging.getLogger(__name__)


def load(dataset: DatasetConfig, *, home: Path | None = None) -> Graph:
    """The graph of a dataset, memory-mapped from its store, which is written now if it does not exist yet.

    All ranks of a host may call this at once: one converts, and all share its pages. Nothing is downloaded.

    Args:
        home: folder of the stores, default `$GNNPAR_DATA/stores` (or in the user's cache folder).

    Raises:
        InputError: not on disk, corrupt, or unsound; every fault at once.
    """
    source = find_source(dataset)
    store = load_store(dataset, source=source, home=home)
    if store.meta["features"] in ("degree", "random") and _features(dataset) == "auto":
        log.warning(
            "dataset %s has no vertex features: using a one-hot of log2(degree). Choose with "
            "dataset.features=degree|random, or make it an error with dataset.features=given.",
            source.name,
        )
    return read_graph(store, split=dataset.split, name=source.name)


def load_store(dataset: DatasetConfig, *, source: Source | None = None, home: Path | None = None) -> Store:
    """The store behind `load`, converted if need be."""
    found = source or find_source(dataset)
    recipe = _recipe(dataset)

    def build(writer: StoreWriter) -> None:
        log.info("converting dataset %s", found.name)
        try:
            raw = found.read()
        except OSError as error:
            raise InputError(f"dataset {found.name}", [f"cannot be read: {error}"]) from error
        write_graph(raw, recipe, writer)

    return cached(store_key(dataset, found), build, home=home)


def store_key(dataset: DatasetConfig, source: Source) -> str:
    """Folder name of a store: the dataset's name and a hash of recipe, parameters and source files."""
    try:
        files = fingerprint(source.files)
    except OSError as error:
        raise InputError(f"dataset {source.name}", [f"cannot be read: {error}"]) from error
    parts = [FORMAT_VERSION, source.name, repr(_recipe(dataset)), source.parameters, files]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()
    return f"{source.name}-{digest}"


def _features(dataset: DatasetConfig) -> str:
    return str(getattr(dataset, "features", "auto"))


def _recipe(dataset: DatasetConfig) -> Recipe:
    made = _features(dataset) == "random"
    return Recipe(
        symmetrize=dataset.symmetrize,
        normalize=dataset.normalize,
        features=_features(dataset),
        num_features=dataset.num_features if made else 0,
        seed=dataset.seed if made else 0,
    )
