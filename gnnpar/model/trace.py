"""A traced forward pass on a tiny graph: checks declarations, derives what crosses stage boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

from gnnpar.graph.graph import Graph
from gnnpar.model.layer import Layer
from gnnpar.model.rows import Rows
from gnnpar.model.whole import Aggregate, WholeGraph, apply_layer

__all__ = ["Passage", "TensorSpec", "Trace", "live_carries", "trace"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a boundary payload, `[n, *tail]` for n rows."""

    name: str
    tail: tuple[int, ...]
    dtype: torch.dtype
    needs_grad: bool


@dataclass
class Passage:
    """What went through one layer when all rows came at once.

    Attributes:
        rows: all rows of the graph. h: what entered. carries: what it could read.
        cut, z: what entered and left its aggregation; None and `h` for a row-wise layer.
        out: what left it.
    """

    layer: Layer
    rows: Rows
    h: Any
    carries: dict[str, Tensor]
    whole: WholeGraph
    cut: Tensor | None = None
    z: Any = None
    out: Tensor | None = None

    def aggregate(self, layer: Layer, x: Tensor, rows: Rows) -> Tensor:
        """The layer's aggregation, noted."""
        self.cut = x
        z = self.whole(layer, x, rows)
        self.z = z
        return z


@dataclass
class Trace:
    """What a traced forward found.

    Attributes:
        faults: one line each; empty where the declarations hold.
        payloads: after each global layer (0 = encoder … L = last layer) what the next ones need: `h`, then
            the carries still to be read, by name. Complete only where there are no faults.
        passages: what went through every global layer.
    """

    faults: list[str] = field(default_factory=list)
    passages: dict[int, Passage] = field(default_factory=dict)
    payloads: list[tuple[TensorSpec, ...]] = field(default_factory=list)
    num_outputs: int | None = None


class _TracedCarries(Mapping[str, Tensor]):
    """Carries that note which names are looked at; layers must not write into it."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.values_by_name = values
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.seen.add(name)
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __setitem__(self, name: str, value: Tensor) -> NoReturn:
        raise TypeError(f"assigns carries[{name!r}]: return (h, {{{name!r}: tensor}}) from after() instead")


class _Undeclared(Exception):
    """`after` looked at an input that the layer says it does not read."""


class _Unread:
    """Stands for the input of a layer with `reads_input = False`."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise _Undeclared

    def __getattr__(self, name: str) -> NoReturn:
        raise _Undeclared

    def _refuse(self, *_: Any) -> NoReturn:
        raise _Undeclared

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = _refuse
    __getitem__ = __len__ = __neg__ = __iter__ = _refuse


def live_carries(layers: Sequence[Layer], position: int) -> tuple[str, ...]:
    """Names of the carries that cross the boundary after global layer `position`, sorted.

    A carry crosses where it has been written (`h0`: by the encoder) and a later layer reads it before any
    later layer replaces it unread.
    """
    written = {"h0"} | {name for layer in layers[: position + 1] for name in layer.writes}
    live = []
    for name in sorted(written):
        for layer in layers[position + 1 :]:
            if name in layer.reads:
                live.append(name)
                break
            if name in layer.writes:
                break
    return tuple(live)


def trace(names: Sequence[str], layers: Sequence[Layer], graph: Graph) -> Trace:
    """Run encoder, layers and decoder on `graph` (a tiny one), in evaluation mode.

    Args:
        names: what to call each layer in a fault.
    """
    result = Trace()
    _check_declared(names, layers, result.faults)
    dtype = next((p.dtype for layer in layers for p in layer.parameters()), torch.get_default_dtype())
    whole = WholeGraph(graph, dtype)
    h: Any = graph.x
    carries: dict[str, Tensor] = {}
    for i, (name, layer) in enumerate(zip(names, layers, strict=True)):
        rows = Rows(graph.node_ids, seed=0, step=0, layer=i, training=False)
        traced = _TracedCarries(carries)

        passage = Passage(layer, rows, h, dict(carries), whole)
        try:
            h, written = _apply(layer, h, traced, rows, passage.aggregate)
        except _Undeclared:
            result.faults.append(f"{name}: after() looks at its input h; declare reads_input = True")
            return result
        except KeyError as error:
            missing = str(error.args[0]) if error.args else "?"
            if missing in carries or missing not in traced.seen:
                result.faults.append(f"{name}: KeyError: {error}")
            else:
                result.faults.append(f"{name}: reads carry {missing!r}, which no earlier layer writes")
            return result
        except Exception as error:  # whatever a user's layer raises is a fault of the model
            first = (str(error).strip().splitlines() or [""])[0]
            text = f"{type(error).__name__}: {first}"
            result.faults.append(_width_fault(names, i, passage.h, text) or f"{name}: {text}")
            return result
        _check_used(name, layer, traced.seen, written, carries, result.faults)
        if not isinstance(h, Tensor) or len(h) != graph.num_nodes:
            shape = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
            result.faults.append(
                f"{name}: gives {shape} for {graph.num_nodes} rows: it must give one row each"
            )
            return result
        passage.out = h
        result.passages[i] = passage
        carries.update(written)
        if i == 0 and any("h0" in layer.reads for layer in layers):
            carries["h0"] = h
        if i < len(layers) - 1:
            tensors = {"h": h} | {key: carries[key] for key in live_carries(layers, i) if key in carries}
            result.payloads.append(
                tuple(TensorSpec(k, tuple(t.shape[1:]), t.dtype, t.requires_grad) for k, t in tensors.items())
            )
    result.num_outputs = h.shape[1] if h.dim() == 2 else None
    return result


def _apply(
    layer: Layer, h: Any, carries: Any, rows: Rows, aggregate: Aggregate
) -> tuple[Tensor, dict[str, Tensor]]:
    if layer.operator is None or layer.reads_input:
        return apply_layer(layer, h, carries, rows, aggregate)
    z = aggregate(layer, layer.before(h, carries, rows), rows)
    result = layer.after(z, _Unread(), carries, rows)  # type: ignore[arg-type]
    return result if isinstance(result, tuple) else (result, {})


def _width_fault(names: Sequence[str], i: int, h: Any, text: str) -> str | None:
    """The fault where layer `i` fails over a shape: as likely as its own is the width that came before it."""
    if not any(word in text.lower() for word in ("shape", "size", "dimension")):
        return None
    width = f"width {h.shape[1]}" if len(h.shape) == 2 else f"{list(h.shape[1:])} a row"
    if i == 0:
        return f"{names[0]}: the features have {width}; it fails: {text}"
    return f"{names[i - 1]} gives {width}; the next one, {names[i]}, fails: {text}"


def _check_declared(names: Sequence[str], layers: Sequence[Layer], faults: list[str]) -> None:
    """Reads without a writer, writes that nobody reads, and writes over a value nobody read."""
    unread: dict[str, str] = {}
    known = {"h0"}
    for i, (name, layer) in enumerate(zip(names, layers, strict=True)):
        for carry in layer.reads:
            unread.pop(carry, None)
            if carry not in known:
                faults.append(
                    f"{name}: declares that it reads carry {carry!r}, which no earlier layer writes"
                )
            elif carry == "h0" and i == 0:
                faults.append(f"{name}: reads 'h0', but 'h0' is the encoder's own output")
        for carry in layer.writes:
            if carry in ("h", "h0"):
                what = "the encoder's output" if carry == "h0" else "what layers return first"
                faults.append(f"{name}: writes carry {carry!r}, but that name is {what}; choose another")
                continue
            if carry in unread:
                faults.append(
                    f"{name}: writes carry {carry!r} over that of {unread[carry]}, which nobody reads; "
                    "read it first, or choose another name"
                )
            unread[carry] = name
            known.add(carry)
    faults.extend(
        f"{name}: writes carry {carry!r}, which no later layer reads; remove it from writes"
        for carry, name in unread.items()
    )


def _check_used(
    name: str,
    layer: Layer,
    seen: set[str],
    written: dict[str, Tensor],
    carries: dict[str, Tensor],
    faults: list[str],
) -> None:
    """What the layer did against what it declared."""
    faults.extend(
        f"{name}: looks at carry {carry!r} without declaring it; add it to reads"
        for carry in sorted(seen - set(layer.reads))
    )
    faults.extend(
        f"{name}: declares that it reads carry {carry!r}, but never looks at it; remove it from reads"
        for carry in sorted(set(layer.reads) - seen)
        if carry in carries
    )
    faults.extend(
        f"{name}: returns carry {carry!r} without declaring it; add it to writes"
        for carry in sorted(set(written) - set(layer.writes))
    )
    faults.extend(
        f"{name}: declares that it writes carry {carry!r}, but does not return it"
        for carry in sorted(set(layer.writes) - set(written))
    )
