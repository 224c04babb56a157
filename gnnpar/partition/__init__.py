"""Cutting the vertices of a graph into parts: methods, quality report, files."""

from gnnpar.partition.build import METHODS, partition_from_config, partition_graph
from gnnpar.partition.files import load_partition, save_partition
from gnnpar.partition.order import INNER_ORDERS, boundary_last
from gnnpar.partition.partition import Partition, PartitionKey
from gnnpar.partition.problem import degree_cost
from gnnpar.partition.quality import PartitionReport, report

__all__ = [
    "INNER_ORDERS",
    "METHODS",
    "Partition",
    "PartitionKey",
    "PartitionReport",
    "boundary_last",
    "degree_cost",
    "load_partition",
    "partition_from_config",
    "partition_graph",
    "report",
    "save_partition",
]
