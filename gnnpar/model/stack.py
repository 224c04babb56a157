"""`LayerStack`: a model as a list of layers, which is what pipelines cut and chunks run through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from torch import nn

from gnnpar.errors import Faults
from gnnpar.model.adapters import adapt_all
from gnnpar.model.layer import ENCODED, Layer
from gnnpar.model.model import Model

__all__ = ["LayerStack"]


class LayerStack(Model):
    """Encoder, graph layers and decoder: `[N, F]` → `[N, C]`.

    Args:
        encoder: row-wise: a `Layer` without operator, or a plain module such as `nn.Linear`.
        layers: own layers, PyG or DGL convolutions (wrapped by adapters), row-wise modules such as `nn.ReLU`.
        decoder: row-wise.

    Raises:
        InputError: modules that cannot be used, all of them, each with the reason.

    Example:
        >>> model = LayerStack(
        ...     encoder=nn.Linear(500, 64),
        ...     layers=[GCNConv(64, 64), nn.ReLU(), GCNII(64, layer=1)],
        ...     decoder=nn.Linear(64, 3),
        ... )

    Parameters are named by global position: `encoder.…`, `layers.0.…`, `decoder.…`. The global layer index,
    which keys dropout, is 0 for the encoder, 1…L for the layers and L + 1 for the decoder.
    """

    def __init__(self, encoder: nn.Module, layers: Iterable[nn.Module], decoder: nn.Module) -> None:
        super().__init__()
        modules = list(layers)
        faults = Faults("model")
        if not modules:
            faults.add("layers: empty; give at least one graph layer")
        named = {"encoder": encoder, **{f"layers.{i}": one for i, one in enumerate(modules)}}
        parts = adapt_all({**named, "decoder": decoder}, faults)
        faults.raise_if_any()
        self.encoder = parts["encoder"]
        self.layers = nn.ModuleList(parts[f"layers.{i}"] for i in range(len(modules)))
        self.decoder = parts["decoder"]

    def all_layers(self) -> list[Layer]:
        """Encoder, layers, decoder; the position is the global layer index."""
        return [self.encoder, *(cast(Layer, layer) for layer in self.layers), self.decoder]

    def layer_names(self) -> list[str]:
        return ["encoder", *(f"layers.{i}" for i in range(len(self.layers))), "decoder"]

    def branches_in_order(self) -> dict[str, list[range]]:
        last = len(self.layers)
        ends = ((0 if i == 1 else i, last + 2 if i == last else i + 1) for i in range(1, last + 1))
        return {"layers": [range(start, stop) for start, stop in ends]}

    @property
    def keeps(self) -> Mapping[int, str]:
        return {0: ENCODED} if any(ENCODED in layer.reads for layer in self.all_layers()) else {}
