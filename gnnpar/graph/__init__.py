"""Graphs in CSR form, blocks of them, normalisation, and the kernels that aggregate over them."""

from gnnpar.graph.block import Block
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.graph.validate import validate

__all__ = ["Block", "Graph", "SparseRows", "validate"]
