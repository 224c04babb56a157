"""`load`: from a dataset's configuration to its graph."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnpar.data.convert import Recipe, read_graph, write_graph
from gnnpar.data.sources import Source, find_source, fingerprint
from gnnpar.data.store import FORMAT_VERSION, Store, StoreWriter, cached, is_store, open_store
from gnnpar.errors import InputError
from gnnpar.graph.graph import Graph

if TYPE_CHECKING:
    from gnnpar.config.schema import DatasetConfig

__all__ = ["dataset_config", "load", "load_store", "store_key"]

log = logging.getLogger(__name__)


def dataset_config(name: str, **changes: Any) -> DatasetConfig:
    """The configuration `dataset=NAME` with other keys, such as `path=FILE`, replaced.

    Raises:
        InputError: no such dataset, or a faulty key.
    """
    from omegaconf import OmegaConf

    from gnnpar.config.resources import resource_dir
    from gnnpar.config.schema import DatasetConfig
    from gnnpar.config.suggest import nearest

    folder = resource_dir("configs") / "dataset"
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise InputError(
            "dataset", [f"there is no {name!r}{nearest(name, names)}; choose one of {', '.join(names)}"]
        )
    values: Any = OmegaConf.to_container(OmegaConf.load(folder / f"{name}.yaml"))
    return DatasetConfig(**{**values, **changes})


def load(dataset: DatasetConfig | str, *, home: Path | None = None, **changes: Any) -> Graph:
    """The graph of a dataset, memory-mapped from its store, which is written now if it does not exist yet.

    All ranks of a host may call this at once: one converts, and all share its pages. Nothing is downloaded.

    Args:
        dataset: its configuration, or a name and keys to change: `load("cora", path="cora.npz")`.
        home: folder of the stores, default `$GNNPAR_DATA/stores` (or in the user's cache folder).

    Raises:
        InputError: not on disk, corrupt, or unsound; every fault at once.
    """
    if isinstance(dataset, str):
        dataset = dataset_config(dataset, **changes)
    store = load_store(dataset, home=home)
    if store.meta["features"] == "degree" and dataset.features == "auto":
        log.warning(
            "dataset %s has no vertex features: using a one-hot of log2(degree). Choose with "
            "dataset.features=degree|random, or make it an error with dataset.features=given.",
            store.meta["name"],
        )
    return read_graph(store, split=dataset.split)


def load_store(dataset: DatasetConfig, *, home: Path | None = None) -> Store:
    """The store behind `load`, converted if need be; or the one that `dataset.path` names, copied here."""
    recipe = _recipe(dataset)
    if dataset.path is not None and is_store(Path(dataset.path).expanduser()):
        return _given_store(Path(dataset.path).expanduser(), recipe)
    found = find_source(dataset)

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


def _given_store(folder: Path, recipe: Recipe) -> Store:
    store = open_store(folder)
    made = store.meta.get("recipe", {})
    faults = [
        f"was converted with dataset.{key}={made.get(key)}, not {value}"
        for key, value in asdict(recipe).items()
        if made.get(key) != value
    ]
    if faults:
        raise InputError(f"store {folder}", faults)
    return store


def _recipe(dataset: DatasetConfig) -> Recipe:
    made = dataset.features == "random"
    return Recipe(
        symmetrize=dataset.symmetrize,
        normalize=dataset.normalize,
        features=dataset.features,
        num_features=dataset.num_features if made else 0,
        seed=dataset.seed if made else 0,
    )
