"""Models: a `LayerStack` or a `LayerGraph` of layers, own ones and foreign ones."""

from gnnpar.model.adapters import DGLConv, PyGConv, adapt, probe
from gnnpar.model.build import build_model
from gnnpar.model.flow import Edge
from gnnpar.model.layer import FEATURES, Carries, Layer, Pull, Push
from gnnpar.model.layer_graph import Branch, LayerGraph
from gnnpar.model.layers import (
    GAT,
    GCN,
    GCNII,
    GEN,
    GIN,
    Decoder,
    Encoder,
    GraphSAGE,
    Jump,
    PreActivation,
    ResGCNPlus,
)
from gnnpar.model.model import Model
from gnnpar.model.rows import Rows
from gnnpar.model.rowwise import RowWise
from gnnpar.model.stack import LayerStack
from gnnpar.model.trace import TensorSpec

__all__ = [
    "FEATURES",
    "GAT",
    "GCN",
    "GCNII",
    "GEN",
    "GIN",
    "Branch",
    "Carries",
    "DGLConv",
    "Decoder",
    "Edge",
    "Encoder",
    "GraphSAGE",
    "Jump",
    "Layer",
    "LayerGraph",
    "LayerStack",
    "Model",
    "PreActivation",
    "Pull",
    "Push",
    "PyGConv",
    "ResGCNPlus",
    "RowWise",
    "Rows",
    "TensorSpec",
    "adapt",
    "build_model",
    "probe",
]
