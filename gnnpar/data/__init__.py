"""Data: readers of many formats, one on-disk store, dataset cards, a generator."""

from gnnpar.data.cards import Card, all_cards, find_card
from gnnpar.data.foreign import as_graph, from_dgl, from_pyg
from gnnpar.data.generate import PlantedPartition, generate
from gnnpar.data.load import dataset_config, load
from gnnpar.data.npz import save_npz
from gnnpar.data.store import cached, open_store

__all__ = [
    "Card",
    "PlantedPartition",
    "all_cards",
    "as_graph",
    "cached",
    "dataset_config",
    "find_card",
    "from_dgl",
    "from_pyg",
    "generate",
    "load",
    "open_store",
    "save_npz",
]
