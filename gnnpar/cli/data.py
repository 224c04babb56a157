"""`gnnpar data`: list the datasets, look at one, convert it, fetch it."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from gnnpar.config import compose
from gnnpar.errors import InputError

if TYPE_CHECKING:
    from gnnpar.config.schema import DatasetConfig
    from gnnpar.graph.graph import Graph

__all__ = ["main"]

USAGE = """usage: gnnpar data list [format=table|json]
       gnnpar data info NAME [dataset.KEY=VALUE …] [format=table|json]
       gnnpar data convert NAME [dataset.KEY=VALUE …] [out=FILE.npz]
       gnnpar data fetch NAME [--yes]

list      the known datasets, and which are on this machine
info      a dataset's card, and the numbers of its graph where it is on this machine
convert   write the store that training reads (it would do so itself); with out= an .npz file beside it
fetch     download a dataset into $GNNPAR_DATA (or the user's cache folder); --yes allows more than 1 GB

  gnnpar data info npz dataset.path=graph.npz dataset.symmetrize=true
"""

_SMALL = 1 << 30


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` and `RunError` for the caller to print."""
    if not argv or any(argument in ("-h", "--help", "help") for argument in argv):
        print(USAGE, end="")
        return 0 if argv else 2
    command, *rest = argv
    commands = {"list": _list, "info": _info, "convert": _convert, "fetch": _fetch}
    if command not in commands:
        raise InputError("gnnpar data", [f"unknown command {command!r}; choose one of {', '.join(commands)}"])
    own = {"format": "table", "out": ""}
    overrides: list[str] = []
    for argument in rest:
        key, equals, value = argument.partition("=")
        if key in own and equals:
            own[key] = value
        else:
            overrides.append(argument if equals or argument.startswith("-") else f"dataset={argument}")
    if own["format"] not in ("table", "json"):
        raise InputError("format", [f"unknown {own['format']!r}; choose table or json"])
    return commands[command](overrides, own)


def _list(overrides: list[str], own: dict[str, str]) -> int:
    from gnnpar.data import all_cards, dataset_config

    if overrides:
        raise InputError("gnnpar data list", [f"takes no {overrides[0]!r}; did you mean gnnpar data info?"])
    rows = []
    for card in all_cards():
        row = dataclasses.asdict(card)
        row["on_disk"] = _on_disk(dataset_config(card.name))
        rows.append(row)
    if own["format"] == "json":
        return _print_json(rows)
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, expand=True)
    table.add_column("name", no_wrap=True)
    table.add_column("on disk")
    for column in ("vertices", "edges", "features", "classes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        numbers = (row[f"num_{key}"] for key in ("nodes", "edges", "features", "classes"))
        cells = (_short(number) for number in numbers)
        table.add_row(row["name"], "yes" if row["on_disk"] else "", *cells, row["title"])
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


def _info(overrides: list[str], own: dict[str, str]) -> int:
    from gnnpar.data import find_card
    from gnnpar.data.sources import find_source

    dataset = _dataset(overrides, "info")
    card = find_card(dataset.name)
    facts: dict[str, Any] = {"card": dataclasses.asdict(card) if card else None, "graph": None}
    facts["on_disk"] = _on_disk(dataset)
    if dataset.path and not facts["on_disk"]:
        find_source(dataset)  # says what is wrong with the path
    if facts["on_disk"] and _is_small(dataset):
        facts["graph"] = _graph_facts(dataset)
    if own["format"] == "json":
        return _print_json(facts)
    from rich.console import Console

    console = Console(highlight=False)
    for key, value in (facts["card"] or {"name": dataset.name}).items():
        if value and key not in ("published", "download"):
            console.print(f"[bold]{key.replace('_', ' ')}[/bold]: ", end="")
            console.print(value, markup=False)
    for result in card.published if card else ():
        spread = f" ± {result.std}" if result.std is not None else ""
        console.print(f"[bold]published[/bold]: {result.model} {result.value}{spread} ({result.reference})")
    console.print(f"[bold]on disk[/bold]: {'yes' if facts['on_disk'] else 'no'}")
    for key, value in (facts["graph"] or {}).items():
        shown = f"{value:,}" if type(value) is int else value
        console.print(f"  {key.replace('_', ' ')}: {shown}")
    return 0


def _convert(overrides: list[str], own: dict[str, str]) -> int:
    from gnnpar.data import load, save_npz
    from gnnpar.data.load import load_store

    dataset = _dataset(overrides, "convert")
    store = load_store(dataset)
    if own["out"]:
        save_npz(load(dataset), own["out"])
    size = sum(file.stat().st_size for file in store.folder.iterdir())
    facts = {"store": str(store.folder), "bytes": size, "out": own["out"] or None}
    if own["format"] == "json":
        return _print_json(facts)
    print(f"{dataset.name}: {size / 1e6:.1f} MB in {store.folder}")
    return 0


def _fetch(overrides: list[str], own: dict[str, str]) -> int:
    from rich.progress import Progress

    from gnnpar.data import find_card
    from gnnpar.data.fetch import fetch

    yes = "--yes" in overrides
    names = [override.removeprefix("dataset=") for override in overrides if override != "--yes"]
    if len(names) != 1:
        raise InputError(
            "gnnpar data fetch", ["name one dataset, as in: gnnpar data fetch ogbn-arxiv [--yes]"]
        )
    card = find_card(names[0])
    if card is None:
        raise InputError(f"dataset {names[0]}", ["has no card; see `gnnpar data list`"])
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(card.name, total=None)
        folder = fetch(
            card, yes=yes, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    print(f"{card.name}: in {folder}")
    return 0


def _short(number: int | None) -> str:
    """Three digits and a power of thousand: 2.32M."""
    if number is None or number < 10_000:
        return f"{number or ''}"
    power = (len(str(number)) - 1) // 3
    return f"{number / 1000**power:.3g}{' KMG'[power]}"


def _dataset(overrides: list[str], command: str) -> DatasetConfig:
    if not any(override.startswith("dataset=") for override in overrides):
        raise InputError(f"gnnpar data {command}", [f"name a dataset, as in: gnnpar data {command} digits"])
    return compose(overrides).dataset


def _on_disk(dataset: DatasetConfig) -> bool:
    from gnnpar.data.sources import find_source

    try:
        find_source(dataset)
    except InputError:
        return False
    return True


def _is_small(dataset: DatasetConfig) -> bool:
    from gnnpar.data.sources import find_source

    return sum(file.stat().st_size for file in find_source(dataset).files) <= _SMALL


def _graph_facts(dataset: DatasetConfig) -> dict[str, Any]:
    from gnnpar.data import load

    graph: Graph = load(dataset)
    degree = graph.in_degree
    same = graph.y[graph.indices.long()] == graph.y[graph.destinations] if not graph.multi_label else None
    return {
        "vertices": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "train_vertices": int(graph.train_mask.sum()),
        "validation_vertices": int(graph.val_mask.sum()),
        "test_vertices": int(graph.test_mask.sum()),
        "largest_in_degree": int(degree.max()) if degree.numel() else 0,
        "vertices_without_edges": int((degree == 0).sum()),
        "symmetric": bool(graph.is_symmetric),
        "edge_homophily": None if same is None or not same.numel() else round(float(same.float().mean()), 4),
        "fingerprint": graph.fingerprint,
    }


def _print_json(value: Any) -> int:
    json.dump(value, sys.stdout, indent=2)
    print()
    return 0
