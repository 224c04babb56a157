"""A traced forward pass on a tiny graph: checks declarations, derives what crosses stage boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

from gnnpar.errors import InputError
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.model.flow import Value
from gnnpar.model.layer import ENCODED, FEATURES, Layer
from gnnpar.model.rows import Rows
from gnnpar.model.whole import Aggregate, WholeGraph, apply_layer

__all__ = ["Passage", "TensorSpec", "Trace", "trace"]


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
        specs: of every value that a layer made. Complete only where there are no faults.
        passages: what went through every global layer.
    """

    faults: list[str] = field(default_factory=list)
    passages: dict[int, Passage] = field(default_factory=dict)
    specs: dict[Value, TensorSpec] = field(default_factory=dict)
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


def trace(names: Sequence[str], layers: Sequence[Layer], keeps: Mapping[int, str], graph: Graph) -> Trace:
    """Run all layers on `graph` (a tiny one), in evaluation mode.

    Where a layer fails, those that need nothing of it are still tried: branches show their faults together.

    Args:
        names: what to call each layer in a fault.
        keeps: global index of a layer → name of the carry that its output becomes.
    """
    result = Trace()
    _check_declared(names, layers, keeps, result.faults)
    dtype = next((p.dtype for layer in layers for p in layer.parameters()), torch.get_default_dtype())
    whole = WholeGraph(graph, dtype)
    h: Any = graph.x
    carries: dict[str, Any] = {FEATURES: graph.x}
    lost: set[str] = set()
    for i, layer in enumerate(layers):
        made = {*layer.writes, *([keeps[i]] if i in keeps else [])}
        if lost & {*layer.reads, *(["h"] if layer.takes_h else [])}:
            lost |= {"h", *made}
            continue
        lost -= {"h", *made}
        rows = Rows(graph.node_ids, seed=0, step=0, layer=i, training=False)
        passage = Passage(layer, rows, h if layer.takes_h else graph.x, dict(carries), whole)
        out = _run(names, i, passage, result.faults)
        if out is None:
            lost |= {"h", *made}
            continue
        h, written = out
        passage.out = h
        result.passages[i] = passage
        carries.update(written)
        if i in keeps:
            carries[keeps[i]] = h
        values = {"h": h, **written, **({keeps[i]: h} if i in keeps else {})}
        for key, t in values.items():
            if isinstance(t, Tensor):
                result.specs[Value(key, i)] = TensorSpec(key, tuple(t.shape[1:]), t.dtype, t.requires_grad)
    if "h" not in lost:
        result.num_outputs = h.shape[1] if h.dim() == 2 else None
    return result


def _run(
    names: Sequence[str], i: int, passage: Passage, faults: list[str]
) -> tuple[Tensor, dict[str, Tensor]] | None:
    """What layer `i` gives, and what it writes; None where it fails, with the reason in `faults`."""
    layer, name, num_rows = passage.layer, names[i], len(passage.rows.ids)
    traced = _TracedCarries(passage.carries)
    try:
        h, written = _apply(layer, passage.h, traced, passage.rows, passage.aggregate)
    except _Undeclared:
        cure = "reads_input = True" if layer.takes_h else "takes_h = True"
        faults.append(f"{name}: after() looks at its input h; declare {cure}")
        return None
    except InputError as error:
        faults.extend(f"{name}: {fault}" for fault in error.faults)
        return None
    except KeyError as error:
        missing = str(error.args[0]) if error.args else "?"
        if missing in passage.carries or missing not in traced.seen:
            faults.append(f"{name}: KeyError: {error}")
        else:
            faults.append(f"{name}: reads carry {missing!r}, which no earlier layer writes")
        return None
    except Exception as error:  # whatever a user's layer raises is a fault of the model
        first = (str(error).strip().splitlines() or [""])[0]
        text = f"{type(error).__name__}: {first}"
        faults.append(_width_fault(names, i, passage.h, text) or f"{name}: {text}")
        return None
    _check_used(name, layer, traced.seen, written, passage.carries, faults)
    passed_on = not layer.takes_h and isinstance(h, SparseRows)  # the features, to a branch that starts so
    if not passed_on and (not isinstance(h, Tensor) or len(h) != num_rows):
        shape = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        faults.append(f"{name}: gives {shape} for {num_rows} rows: it must give one row each")
        return None
    return h, written


def _apply(
    layer: Layer, h: Any, carries: Any, rows: Rows, aggregate: Aggregate
) -> tuple[Tensor, dict[str, Tensor]]:
    if layer.takes_h and (layer.operator is None or layer.reads_input):
        return apply_layer(layer, h, carries, rows, aggregate)
    unread: Any = _Unread()
    z = aggregate(layer, layer.before(h, carries, rows), rows) if layer.takes_h else unread
    result = layer.after(z, unread, carries, rows)
    return result if isinstance(result, tuple) else (result, {})


def _width_fault(names: Sequence[str], i: int, h: Any, text: str) -> str | None:
    """The fault where layer `i` fails over a shape: as likely as its own is the width that came before it."""
    if not any(word in text.lower() for word in ("shape", "size", "dimension")):
        return None
    width = f"width {h.shape[1]}" if len(h.shape) == 2 else f"{list(h.shape[1:])} a row"
    if i == 0:
        return f"{names[0]}: the features have {width}; it fails: {text}"
    return f"{names[i - 1]} gives {width}; the next one, {names[i]}, fails: {text}"


def _check_declared(
    names: Sequence[str], layers: Sequence[Layer], keeps: Mapping[int, str], faults: list[str]
) -> None:
    """Reads without a writer, writes that nobody reads, and writes over a value nobody read."""
    reserved = {
        "h": "what layers return first",
        ENCODED: "the encoder's output",
        FEATURES: "the input features",
    }
    unread: dict[str, str] = {}
    known = {FEATURES}
    for i, (name, layer) in enumerate(zip(names, layers, strict=True)):
        for carry in layer.reads:
            unread.pop(carry, None)
            if carry == ENCODED and i == 0 and i in keeps:
                faults.append(f"{name}: reads 'h0', but 'h0' is the encoder's own output")
            elif carry == ENCODED and carry not in known:
                faults.append(f"{name}: reads 'h0', the encoder's output, but there is no encoder; give one")
            elif carry not in known:
                faults.append(
                    f"{name}: declares that it reads carry {carry!r}, which no earlier layer writes"
                )
        for carry in layer.writes:
            if carry in reserved or carry.startswith("branches."):
                what = reserved.get(carry, "the output of a branch")
                faults.append(f"{name}: writes carry {carry!r}, but that name is {what}; choose another")
                continue
            if carry in unread:
                faults.append(
                    f"{name}: writes carry {carry!r} over that of {unread[carry]}, which nobody reads; "
                    "read it first, or choose another name"
                )
            unread[carry] = name
            known.add(carry)
        if i in keeps:
            known.add(keeps[i])
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
