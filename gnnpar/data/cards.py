"""Dataset cards: what a dataset is, where it comes from, its licence, and what others reached on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnpar.errors import InputError

__all__ = ["Card", "Download", "Published", "all_cards", "find_card", "read_card"]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A result of others: `value` is the metric on the test vertices in percent."""

    model: str
    value: float
    reference: str
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file to fetch.

    Attributes:
        num_bytes: of the file, rounded; shown before it is fetched.
        sha256: checked where known.
        unpack: a zip archive that is unpacked beside it.
    """

    url: str
    num_bytes: int
    sha256: str | None = None
    unpack: bool = False


@dataclass(frozen=True, kw_only=True)
class Card:
    """One file of `datasets/`.

    Attributes:
        num_edges: as stored after the recipe, both directions counted.
        metric: `accuracy` or `roc_auc`.
        transform: the recipe in words.
        obtain: how to get the source where it cannot be fetched.
    """

    name: str
    title: str
    source: str
    licence: str
    transform: str
    split: str
    metric: str = "accuracy"
    citation: str = ""
    num_nodes: int | None = None
    num_edges: int | None = None
    num_features: int | None = None
    num_classes: int | None = None
    published: tuple[Published, ...] = ()
    download: Download | None = None
    obtain: str = ""
    notes: str = ""


def read_card(path: Path) -> Card:
    """Read one card.

    Raises:
        InputError: not YAML, or keys that a card does not have.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(path))
        published = tuple(Published(**entry) for entry in values.pop("published", ()))
        download = values.pop("download", None)
        return Card(**values, published=published, download=Download(**download) if download else None)
    except (OSError, ValueError, TypeError, AttributeError, OmegaConfBaseException, YAMLError) as error:
        raise InputError(f"dataset card {path}", [str(error)]) from error


def find_card(name: str) -> Card | None:
    """The card of a dataset, None where there is none."""
    path = _folder() / f"{name}.yaml"
    return read_card(path) if path.exists() else None


def all_cards() -> list[Card]:
    """Every card, by name."""
    return [read_card(path) for path in sorted(_folder().glob("*.yaml"))]


def _folder() -> Path:
    from gnnpar.config.resources import resource_dir

    return resource_dir("datasets")
