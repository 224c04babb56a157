"""`LayerGraph`: a model whose layers form branches, which may run at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import cast

from torch import nn

from gnnpar.errors import Faults
from gnnpar.model.adapters import adapt_all
from gnnpar.model.layer import ENCODED, FEATURES, Layer
from gnnpar.model.layers.join import JOINS, Join
from gnnpar.model.model import Model

__all__ = ["Branch", "LayerGraph"]

_ENCODER = "encoder"


class Branch:
    """A chain of layers of a `LayerGraph`.

    Args:
        layers: whatever a `LayerStack` takes; none where the branch only joins others.
        inputs: names of branches, `"encoder"`, or `"features"` for the graph's own; one or several.
        join: how several inputs become one: `"sum"`, `"mean"`, `"max"`, `"cat"`, or a row-wise module of as
            many arguments, each `[n, H_i]`.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        inputs: str | Sequence[str] = _ENCODER,
        join: str | nn.Module | None = None,
    ) -> None:
        self.layers = list(layers)
        self.inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        self.join = join


class LayerGraph(Model):
    """Branches of layers between an encoder and a decoder: `[N, F]` → `[N, C]`.

    Args:
        branches: name → `Branch`, in any order. The decoder reads the one that no other reads.
        encoder, decoder: row-wise, as for `LayerStack`. Without an encoder, branches read `"features"`.

    Raises:
        InputError: inputs that do not exist or go round in a circle, branches that lead nowhere, joins that
            are missing, modules that cannot be used: all of them. (Widths are known when a graph is:
            `check`.)

    Example:
        >>> model = LayerGraph(
        ...     branches={
        ...         "near": Branch([nn.Linear(500, 64), GCN(64, 64)], inputs="features"),
        ...         "far": Branch([nn.Linear(500, 64), GCN(64, 64), GCN(64, 64)], inputs="features"),
        ...         "both": Branch([GCN(128, 64)], inputs=("near", "far"), join="cat"),
        ...     },
        ...     decoder=nn.Linear(64, 3),
        ... )

    Layers have one global order, in which a branch follows those it reads: one after the other, they are a
    chain that any schedule runs. Parameters are named `branches.near.0.…`, whatever the stages. On stages of
    its own (`system=graphpipe`), a branch runs beside those it does not depend on.
    """

    def __init__(
        self, branches: Mapping[str, Branch], decoder: nn.Module, encoder: nn.Module | None = None
    ) -> None:
        super().__init__()
        faults = Faults("model")
        order = _in_order({name: branch.inputs for name, branch in branches.items()})
        faults.extend(_name_faults(branches))
        faults.extend(_input_faults(branches, encoder is not None))
        faults.extend(_shape_faults(branches, order))
        modules = {} if encoder is None else {_ENCODER: encoder}
        for name, branch in branches.items():
            modules |= {f"branches.{name}.{i}": one for i, one in enumerate(branch.layers)}
        parts = adapt_all({**modules, "decoder": decoder}, faults)
        faults.raise_if_any()
        self.encoder = parts.get(_ENCODER)
        self.branches = nn.ModuleDict()
        previous = FEATURES if encoder is None else _ENCODER
        for name in order:
            branch = branches[name]
            layers = {str(i): parts[f"branches.{name}.{i}"] for i in range(len(branch.layers))}
            if branch.inputs != (previous,):  # else its input is what comes right before it
                carries = [_carry(one) for one in branch.inputs]
                layers = {"join": Join(carries, branch.join, branch.inputs), **layers}
            self.branches[name] = nn.ModuleDict(layers)
            previous = name
        self.decoder = parts["decoder"]

    def all_layers(self) -> list[Layer]:
        """Encoder (where there is one), every branch after those it reads, decoder."""
        return list(self._named().values())

    def layer_names(self) -> list[str]:
        return list(self._named())

    def branches_in_order(self) -> dict[str, list[range]]:
        found: dict[str, list[range]] = {}
        last, place = len(self.all_layers()) - 1, 0 if self.encoder is None else 1
        for name, layers in self.branches.items():
            keys = list(cast(nn.ModuleDict, layers))
            starts = list(range(place, place + len(keys)))
            place += len(keys)
            if keys[0] == "join" and len(keys) > 1:
                del starts[1]  # the first layer stays with the join
            if not found:
                starts[0] = 0
            found[name] = [range(*ends) for ends in pairwise([*starts, last + 1 if place == last else place])]
        return found

    @property
    def keeps(self) -> Mapping[int, str]:
        read = {carry for layer in self.all_layers() for carry in layer.reads}
        ends = [(0, ENCODED)] if self.encoder is not None else []
        ends += [(units[-1][-1], _carry(name)) for name, units in self.branches_in_order().items()]
        return {end: carry for end, carry in ends if carry in read}

    def _named(self) -> dict[str, Layer]:
        named = {} if self.encoder is None else {_ENCODER: self.encoder}
        for name, layers in self.branches.items():
            for key, layer in cast(nn.ModuleDict, layers).items():
                named[f"branches.{name}.{key}"] = cast(Layer, layer)
        return {**named, "decoder": self.decoder}


def _carry(name: str) -> str:
    """The carry that brings an input to where it is read."""
    return {_ENCODER: ENCODED, FEATURES: FEATURES}.get(name, f"branches.{name}")


def _in_order(inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Names, each after those it reads, else as they come; those in or after a circle are left out."""
    order: list[str] = []
    left = list(inputs)
    while ready := [name for name in left if not set(inputs[name]) & set(left)]:
        order.append(ready[0])
        left.remove(ready[0])
    return order


def _name_faults(branches: Mapping[str, Branch]) -> list[str]:
    faults = [] if branches else ["branches: empty; give at least one"]
    taken = (_ENCODER, FEATURES, "decoder", "")
    return faults + [
        f"branches: {name!r} cannot name a branch; choose another word, without dots"
        for name in branches
        if name in taken or "." in name or hasattr(nn.ModuleDict, name)
    ]


def _input_faults(branches: Mapping[str, Branch], has_encoder: bool) -> list[str]:
    """Of every branch: what it reads, and how it joins it."""
    faults = []
    known = [*branches, *([_ENCODER] if has_encoder else []), FEATURES]
    for name, branch in branches.items():
        where = f"branches.{name}"
        for one in dict.fromkeys(branch.inputs):
            if one == _ENCODER and not has_encoder:
                faults.append(f"{where}: reads 'encoder', but there is none; give one, or read 'features'")
            elif one not in known:
                faults.append(f"{where}: reads {one!r}, which does not exist; there are {', '.join(known)}")
            if branch.inputs.count(one) > 1:
                faults.append(f"{where}: reads {one!r} twice; once is enough")
        several, join = len(branch.inputs) > 1, branch.join
        if not branch.inputs:
            faults.append(f"{where}: inputs are empty; name a branch, 'encoder' or 'features'")
        if several and join is None:
            faults.append(
                f"{where}: has {len(branch.inputs)} inputs; say how to join them: {', '.join(JOINS)}"
            )
        if not several and join is not None:
            faults.append(f"{where}: has nothing to join; give it several inputs, or no join")
        if isinstance(join, str) and join not in JOINS:
            faults.append(f"{where}: join {join!r} is none of {', '.join(JOINS)}, or a module")
        if not branch.layers and not several:
            faults.append(f"{where}: layers are empty, and there is nothing to join")
    read = {one for branch in branches.values() for one in branch.inputs}
    if has_encoder and branches and _ENCODER not in read:
        faults.append("encoder: no branch reads it; leave it out, or read 'encoder'")
    return faults


def _shape_faults(branches: Mapping[str, Branch], order: Sequence[str]) -> list[str]:
    """Circles, and branches that lead nowhere."""
    inside = [name for name in branches if name not in order]
    circles: dict[frozenset[str], list[str]] = {}
    for start in inside:
        path = [start]
        while path[-1] not in path[:-1]:  # from reader to read, until one comes again
            path.append(next(one for one in branches[path[-1]].inputs if one in inside))
        circle = path[path.index(path[-1]) :]
        circles.setdefault(frozenset(circle), circle)
    faults = [
        f"branches: they read each other in a circle: {' ← '.join(circle)}; break it"
        for circle in circles.values()
    ]
    read = {one for branch in branches.values() for one in branch.inputs}
    ends = [name for name in branches if name not in read]
    if len(ends) > 1:
        faults.append(
            f"branches {', '.join(ends)}: nobody reads them, and the decoder reads one only; leave out what "
            f"is not used, or join them in one more branch, inputs=({', '.join(map(repr, ends))})"
        )
    return faults
