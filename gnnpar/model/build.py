"""Models by name: an encoder, `num_layers` equal layers, a decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from torch import nn

from gnnpar.errors import InputError
from gnnpar.model.layer import Layer
from gnnpar.model.layers import (
    GAT,
    GCN,
    GCNII,
    GEN,
    GIN,
    Decoder,
    Encoder,
    GraphSAGE,
    PreActivation,
    ResGCNPlus,
)
from gnnpar.model.layers.jump import Jump, JumpDecoder
from gnnpar.model.stack import LayerStack

if TYPE_CHECKING:
    from gnnpar.config import ModelConfig

__all__ = ["build_model"]

_PRE_ACTIVATION = ("resgcn", "gen")


def build_model(
    model: ModelConfig, num_features: int, num_classes: int, sparse_features: bool = False
) -> LayerStack:
    """The network that `model` describes, `[N, num_features]` → `[N, num_classes]`.

    Parameters are drawn from torch's generator: seed it first. Encoder: dropout → linear → relu; decoder:
    dropout → linear. For `resgcn` and `gen`, chains of pre-activation blocks, the encoder has no relu, and
    the decoder begins with norm → relu.

    Args:
        sparse_features: whether x comes as `SparseRows`. The parameters are the same either way.

    Raises:
        InputError: values that do not go together.
    """
    make = _LAYERS.get(model.name)
    faults = []
    if make is None:
        known = ", ".join(_LAYERS)
        faults.append(f"model.name: no network is named {model.name!r}; choose one of {known}")
    if model.name == "gat" and model.hidden % model.heads:
        faults.append(f"model.heads: {model.heads} heads do not divide model.hidden={model.hidden}")
    if sparse_features and num_features == 0:
        faults.append("dataset: sparse features of width 0; give the graph features")
    if faults or make is None:
        raise InputError("model", faults)
    layers = [make(model, number) for number in range(1, model.num_layers + 1)]
    pre_activation = model.name in _PRE_ACTIVATION
    encoder = (
        Encoder(num_features, model.hidden, dropout=model.dropout, activation=None)
        if pre_activation
        else Encoder(num_features, model.hidden, dropout=model.dropout)
    )
    decoder: Layer = Decoder(
        model.hidden,
        num_classes,
        dropout=model.dropout,
        norm=model.norm if pre_activation else None,
        pre_activation=pre_activation,
        carry="jk" if model.jumping_knowledge in ("max", "sum") else None,
    )
    if model.jumping_knowledge != "none":
        mode = model.jumping_knowledge
        layers = [
            Jump(
                layer,
                mode,
                first=i == 0,
                width=model.hidden,
                out_features=num_classes,
                dropout=model.dropout,
            )
            for i, layer in enumerate(layers)
        ]
        if mode == "cat":
            decoder = JumpDecoder(num_classes)
    return LayerStack(encoder, cast(list[nn.Module], layers), decoder)


def _gcn(model: ModelConfig, number: int) -> Layer:
    return GCN(model.hidden, model.hidden, dropout=model.dropout, norm=model.norm)


def _sage(model: ModelConfig, number: int) -> Layer:
    return GraphSAGE(
        model.hidden, model.hidden, aggregation=model.aggregation, dropout=model.dropout, norm=model.norm
    )


def _gin(model: ModelConfig, number: int) -> Layer:
    return GIN(model.hidden, model.hidden, dropout=model.dropout, norm=model.norm)


def _gat(model: ModelConfig, number: int) -> Layer:
    return GAT(
        model.hidden,
        model.hidden // model.heads,
        heads=model.heads,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        norm=model.norm,
    )


def _gcnii(model: ModelConfig, number: int) -> Layer:
    return GCNII(model.hidden, number, alpha=model.alpha, theta=model.theta, dropout=model.dropout)


def _resgcn(model: ModelConfig, number: int) -> Layer:
    return ResGCNPlus(model.hidden, norm=model.norm, dropout=model.dropout)


def _gen(model: ModelConfig, number: int) -> Layer:
    conv = GEN(model.hidden, model.hidden, t=model.temperature, learn_t=True, norm=model.norm)
    return PreActivation(conv, model.hidden, norm=model.norm, dropout=model.dropout)


_LAYERS: dict[str, Callable[[ModelConfig, int], Layer]] = {
    "gcn": _gcn,
    "sage": _sage,
    "gin": _gin,
    "gat": _gat,
    "gcnii": _gcnii,
    "resgcn": _resgcn,
    "gen": _gen,
}
