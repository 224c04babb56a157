"""Which files a dataset is read from, and how: one `Source` for every kind of `dataset.kind`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnpar.data.home import raw_folder
from gnnpar.data.raw import RawGraph
from gnnpar.errors import InputError

if TYPE_CHECKING:
    from gnnpar.config.schema import DatasetConfig

__all__ = ["Source", "find_source", "fingerprint"]

_WHOLE = 64 << 20
_SAMPLE = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where a graph comes from.

    Attributes:
        name: of the graph.
        files: what is read; a change of any converts again.
        read: does it.
        parameters: what else the result depends on.
    """

    name: str
    files: tuple[Path, ...]
    read: Callable[[], RawGraph]
    parameters: str = ""


def find_source(dataset: DatasetConfig) -> Source:
    """The source of a dataset, found on this machine; nothing is read yet, and never downloaded.

    Raises:
        InputError: not on disk (the message says how to get it), or of a kind that is not read.
    """
    if dataset.kind == "builtin":
        return _builtin(dataset.name)
    if dataset.kind == "generated":
        return _generated(dataset)
    if dataset.kind not in ("npz", "ogb"):
        raise InputError(
            f"dataset {dataset.name}", [f"dataset.kind={dataset.kind}: not read from disk. {_CONVERT}"]
        )
    if dataset.path is None and dataset.name == "npz":
        raise InputError("dataset npz", ["give the file as dataset.path"])
    path = Path(dataset.path).expanduser() if dataset.path else raw_folder(dataset.name)
    if not path.exists():
        raise InputError(f"dataset {dataset.name}", [_missing(dataset, path)])
    return _ogb(dataset, path) if dataset.kind == "ogb" else _npz(dataset, path)


def fingerprint(files: tuple[Path, ...]) -> str:
    """Hash of names and contents (of size, time of change, beginning and end for files above 64 MiB)."""
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} ".encode())
        with open(path, "rb") as file:
            if stat.st_size <= _WHOLE:
                digest.update(file.read())
            else:
                digest.update(f"{stat.st_mtime_ns} ".encode() + file.read(_SAMPLE))
                file.seek(-_SAMPLE, 2)
                digest.update(file.read())
    return digest.hexdigest()


_CONVERT = (
    "Load it with its own library and write arrays: "
    "`gnnpar.data.save_npz(gnnpar.data.from_pyg(data), 'graph.npz')`, "
    "then dataset.kind=npz dataset.path=graph.npz"
)


def _builtin(name: str) -> Source:
    from gnnpar.data.builtin import read_digits, read_karate

    readers = {"digits": read_digits, "karate": read_karate}
    if name not in readers:
        raise InputError(
            f"dataset {name}", [f"is not built in (those are {', '.join(readers)}); set dataset.kind"]
        )
    return Source(name, (), readers[name])


def _generated(dataset: DatasetConfig) -> Source:
    from gnnpar.data.generate import PlantedPartition, generate

    spec = PlantedPartition(
        num_nodes=dataset.num_nodes,
        mean_degree=dataset.mean_degree,
        exponent=dataset.exponent,
        homophily=dataset.homophily,
        signal=dataset.signal,
        num_features=dataset.num_features,
        num_classes=dataset.num_classes,
        seed=dataset.seed,
    )
    spec.check()
    return Source(dataset.name, (), lambda: generate(spec), repr(spec))


def _npz(dataset: DatasetConfig, path: Path) -> Source:
    from gnnpar.data.npz import read_npz, read_reddit
    from gnnpar.data.saint import SAINT_FILES, read_saint

    name = dataset.name
    if path.is_file():
        name = path.stem if name == "npz" else name
        return Source(name, (path,), lambda: read_npz(path, name))
    if (path / "adj_full.npz").exists():
        files = tuple(path / file for file in SAINT_FILES if (path / file).exists())
        return Source(name, files, lambda: read_saint(path, name))
    if (path / "reddit_graph.npz").exists():
        pair = (path / "reddit_data.npz", path / "reddit_graph.npz")
        return Source(name, pair, lambda: read_reddit(path, name))
    named = [path / f"{stem}.npz" for stem in (name, name.replace("-", "_"))]
    files = tuple(file for file in named if file.exists()) or tuple(sorted(path.glob("*.npz")))
    if len(files) == 1 or (files and files[0] in named):
        return Source(name, files[:1], lambda: read_npz(files[0], name))
    pickles = sorted(file.name for sub in (".", "raw") for file in (path / sub).glob("ind.*.*"))
    if pickles:
        raise InputError(
            f"dataset {name}",
            [
                f"{path} holds Python pickles ({pickles[0]} …), which can run any code and are never read. "
                + _CONVERT
            ],
        )
    if files:
        raise InputError(
            f"dataset {name}", [f"{path} holds {len(files)} .npz files; give one of them as dataset.path"]
        )
    raise InputError(f"dataset {name}", [_missing(dataset, path)])


def _ogb(dataset: DatasetConfig, path: Path) -> Source:
    from gnnpar.data.ogb import find_ogb_folder, ogb_files, read_ogb

    folder = find_ogb_folder(path, dataset.name)
    if folder is None:
        raise InputError(f"dataset {dataset.name}", [f"{path} has no folder raw/. {_missing(dataset, path)}"])
    files = tuple(ogb_files(folder))
    return Source(dataset.name, files, lambda: read_ogb(folder, dataset.name, symmetrize=dataset.symmetrize))


def _missing(dataset: DatasetConfig, path: Path) -> str:
    from gnnpar.data.cards import find_card

    where, cure = f"nothing to read at {path}", "correct dataset.path"
    if path.is_dir():
        where, cure = f"{path} is a folder without a file that can be read", "give the file as dataset.path"
    card = (
        find_card(dataset.name) if dataset.name != dataset.kind else None
    )  # a file of the user's own has none
    if card is not None and card.download is not None:
        cure = f"run `gnnpar data fetch {card.name}`, or set dataset.path to a copy of {card.download.url}"
    elif card is not None and card.obtain:
        cure = f"{card.obtain.strip()}, and set dataset.path"
    return f"not on disk: {where}; {cure}"
