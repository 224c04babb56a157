"""Graph layers, one file each."""

from gnnpar.model.layers.ends import Decoder, Encoder
from gnnpar.model.layers.gat import GAT
from gnnpar.model.layers.gcn import GCN
from gnnpar.model.layers.gcnii import GCNII
from gnnpar.model.layers.gen import GEN
from gnnpar.model.layers.gin import GIN
from gnnpar.model.layers.jump import Jump
from gnnpar.model.layers.residual import PreActivation, ResGCNPlus
from gnnpar.model.layers.sage import GraphSAGE

__all__ = [
    "GAT",
    "GCN",
    "GCNII",
    "GEN",
    "GIN",
    "Decoder",
    "Encoder",
    "GraphSAGE",
    "Jump",
    "PreActivation",
    "ResGCNPlus",
]
