"""Embeddings of earlier steps, and the rule by which aggregation reads them."""

from gnnpar.history.mapped import MappedRows, foreign_histories
from gnnpar.history.planner import ReadsPlanner
from gnnpar.history.policy import HistoryPolicy
from gnnpar.history.reads import Edges, Reads
from gnnpar.history.store import CutStore

__all__ = ["CutStore", "Edges", "HistoryPolicy", "MappedRows", "Reads", "ReadsPlanner", "foreign_histories"]
