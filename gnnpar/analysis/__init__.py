"""What a run costs and what it is, before anything runs: work, depth, bytes, memory, taxonomy."""

from gnnpar.analysis.analyze import Analysis, analyze, analyze_presets, taxonomy_of
from gnnpar.analysis.expr import Expr, log2, symbol
from gnnpar.analysis.layers import LayerCost, Pass
from gnnpar.analysis.schemes import Scheme, schemes
from gnnpar.analysis.taxonomy import Stale, Taxonomy, taxonomy
from gnnpar.analysis.totals import ModelCost, cost_of_model
from gnnpar.analysis.traffic import Flow, epoch_traffic, step_traffic

__all__ = [
    "Analysis",
    "Expr",
    "Flow",
    "LayerCost",
    "ModelCost",
    "Pass",
    "Scheme",
    "Stale",
    "Taxonomy",
    "analyze",
    "analyze_presets",
    "cost_of_model",
    "epoch_traffic",
    "log2",
    "schemes",
    "step_traffic",
    "symbol",
    "taxonomy",
    "taxonomy_of",
]
