"""Models: a `LayerStack` of layers, own ones and foreign ones."""

from gnnpar.model.adapters import DGLConv, PyGConv, adapt, probe
from gnnpar.model.build import build_model
from gnnpar.model.layer import Carries, Layer, Pull, Push
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
from gnnpar.model.rows import Rows
from gnnpar.model.rowwise import RowWise
from gnnpar.model.stack import LayerStack
from gnnpar.model.trace import TensorSpec

__all__ = [
    "GAT",
    "GCN",
    "GCNII",
    "GEN",
    "GIN",
    "Carries",
    "DGLConv",
    "Decoder",
    "Encoder",
    "GraphSAGE",
    "Jump",
    "Layer",
    "LayerStack",
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
