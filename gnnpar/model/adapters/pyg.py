"""PyG convolutions as layers."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from gnnpar.errors import InputError
from gnnpar.model.adapters.foreign import Foreign, Strategy, View

__all__ = ["PyGConv"]

_INITIAL = ("x_0", "x0", "h0")
_GIVEN = {"x", "edge_index", "edge_weight", "edge_attr", *_INITIAL}


class PyGConv(Foreign):
    """Any PyG convolution of which `forward` takes `x`, `edge_index` and perhaps weights or features.

    Edge weights and edge features of the graph are passed where the module takes them, `h0` where it takes an
    initial representation (`GCN2Conv`, `FAConv`).

    Raises:
        InputError: it wants something else, such as positions or edge types.
    """

    def __init__(self, conv: nn.Module) -> None:
        parameters = inspect.signature(conv.forward).parameters
        faults = _signature_faults(parameters)
        if "edge_type" in parameters and getattr(conv, "num_relations", 1) > 1:
            faults.append("wants the type of every edge, which a Graph does not carry")
        if faults:
            raise InputError(type(conv).__name__, faults)
        super().__init__(conv)
        self.takes_weight = "edge_weight" in parameters
        self.initial = next((name for name in _INITIAL if name in parameters), None)
        self.reads = () if self.initial is None else ("h0",)
        self._edge_attr = _takes_edge_attr(conv, parameters)
        if not _takes_pairs(parameters["x"]) or self.initial is not None:
            self.strategies = tuple[Strategy, ...](s for s in self.strategies if s != "bipartite")

    def call(self, x: Tensor, x_rows: Tensor, initial: Tensor | None, view: View) -> Tensor:
        arguments: dict[str, Any] = {"x": (x, x_rows) if view.bipartite else x}
        arguments["edge_index"] = torch.stack([view.source, view.destination])
        if self.initial is not None:
            arguments[self.initial] = initial
        if self.takes_weight and view.edge_weight is not None:
            arguments["edge_weight"] = view.edge_weight
        if self._edge_attr and view.edge_attr is not None:
            arguments["edge_attr"] = view.edge_attr
        out = self.foreign(**arguments)
        if not isinstance(out, Tensor):
            raise TypeError(f"returns a {type(out).__name__}, not one tensor with a row per vertex")
        return out


def _signature_faults(parameters: Any) -> list[str]:
    """What `forward` wants that a `Graph` does not carry."""
    if "x" not in parameters or "edge_index" not in parameters:
        return [f"forward({', '.join(parameters)}) does not take x and edge_index of one vertex set"]
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in _GIVEN
    ]
    return [f"forward wants {name!r}, which a Graph does not carry" for name in lacking]


def _takes_edge_attr(conv: nn.Module, parameters: Any) -> bool:
    """PyG's modules say by `edge_dim` (`CGConv`: `dim`) whether they use edge features; others just do."""
    if "edge_attr" not in parameters:
        return False
    for name in ("edge_dim", "dim"):
        if hasattr(conv, name):
            return bool(getattr(conv, name))
    return True


def _takes_pairs(parameter: inspect.Parameter) -> bool:
    """Whether `x` is annotated as a pair of tensors, too; without annotation it may be."""
    annotation = parameter.annotation
    return annotation is parameter.empty or "Tuple" in str(annotation) or "Pair" in str(annotation)
