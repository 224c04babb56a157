"""Keys of the network, and of what it keeps in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnpar.config.keys.types import Fraction, NonNegative, Positive, PositiveInt, Probability
from gnnpar.config.section import Section

__all__ = ["MemoryConfig", "ModelConfig"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network: an encoder, `num_layers` graph layers of equal width, a decoder."""

    section: ClassVar[str] = "model"

    name: Literal["gcn", "sage", "gin", "gat", "gcnii", "resgcn", "gen", "custom"] = "gcnii"
    """Kind of graph layer; `custom` is a model handed over from Python."""
    num_layers: PositiveInt = 32
    """Graph layers, the encoder and the decoder not counted."""
    hidden: PositiveInt = 64
    """Width of every graph layer."""
    dropout: Probability = 0.5
    """Share of elements dropped before each layer."""
    alpha: Fraction = 0.1
    """GCNII: weight of the initial residual (α, §3 of the paper)."""
    theta: NonNegative = 0.5
    """GCNII: strength of the weight matrices, β_l = log(θ / l + 1) (λ in the paper)."""
    heads: PositiveInt = 1
    """GAT: attention heads; `hidden` is the width of all together."""
    attention_dropout: Probability = 0.0
    """GAT: share of attention weights dropped."""
    aggregation: Literal["mean", "sum"] = "mean"
    """GraphSAGE: how neighbours are combined."""
    temperature: Positive = 1.0
    """GEN: inverse temperature of its softmax aggregation, at the start of training."""
    norm: Literal["none", "layer", "rms", "batch"] = "none"
    """Normalisation in each layer. `batch` uses the rows that run together: it depends on chunking."""
    jumping_knowledge: Literal["none", "cat", "max", "sum"] = "none"
    """What the decoder reads: the last layer, or all layers concatenated, their maximum, or their sum."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Section):
    """What is kept from forward to backward."""

    section: ClassVar[str] = "memory"

    recompute: bool = False
    """Keep aggregation inputs and outputs only, and compute everything else again in backward."""
    sequential: bool = False
    """Of `parallel.ways`, each keeps rows of its own vertices only, and fetches those of others one way at a
    time, whenever they are read (SAR). Needs `batch.num_chunks=1`."""
