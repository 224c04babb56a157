"""Who reads what: the values that layers make, and the way each takes over a graph of stages.

Pure functions over declarations; no tensor is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnnpar.model.layer import Layer

__all__ = ["Edge", "Value", "chain", "stage_edges", "stages_of", "values_over_edges", "values_read"]

Edge = tuple[int, int]
"""From one stage to another that reads what it makes."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor by its name, `h` or a carry, and by the global index of the layer that made it."""

    name: str
    maker: int


def values_read(layers: Sequence[Layer], keeps: Mapping[int, str]) -> list[tuple[Value, ...]]:
    """What every layer reads: `h` of the layer before it, and carries as they were written last.

    The input features are no value: whoever reads them has them.

    Args:
        keeps: global index of a layer → name of the carry that its output becomes.
    """
    last: dict[str, int] = {}
    found = []
    for index, layer in enumerate(layers):
        read = [Value("h", index - 1)] if layer.takes_h and index > 0 else []
        read += [Value(name, last[name]) for name in sorted(set(layer.reads)) if name in last]
        found.append(tuple(read))
        last.update(dict.fromkeys(layer.writes, index))
        if index in keeps:
            last[keeps[index]] = index
    return found


def stages_of(split: Sequence[int]) -> list[int]:
    """The stage of every layer, given how many layers each stage has."""
    return [stage for stage, count in enumerate(split) for _ in range(count)]


def chain(num_stages: int) -> tuple[Edge, ...]:
    """The edges of stages that follow one another."""
    return tuple((stage, stage + 1) for stage in range(num_stages - 1))


def stage_edges(layers: Sequence[Layer], keeps: Mapping[int, str], split: Sequence[int]) -> tuple[Edge, ...]:
    """The graph of stages that follows from who reads what.

    The rows `h` and what a branch starts from go straight from maker to reader. Other carries (`h0`, jumping
    knowledge) travel along the edges that these make; where none lead to a reader, it gets one of its own.
    """
    stage = stages_of(split)
    straight, others = set(), []
    for index, values in enumerate(values_read(layers, keeps)):
        for value in values:
            edge = stage[value.maker], stage[index]
            if edge[0] == edge[1]:
                continue
            if value.name == "h" or not layers[index].takes_h:
                straight.add(edge)
            else:
                others.append(edge)
    for source, target in others:
        if source not in _ancestors(straight, len(split))[target]:
            straight.add((source, target))
    return tuple(sorted(straight))


def values_over_edges(
    read: Sequence[tuple[Value, ...]], split: Sequence[int], edges: Iterable[Edge]
) -> dict[Edge, tuple[Value, ...]]:
    """What crosses every edge: `h` first, then carries by name.

    A value is brought to a stage once, over one path: straight from its maker where there is an edge, else by
    the last of the stages before that the maker leads to, which passes it on.
    """
    stage, over = stages_of(split), {edge: set[Value]() for edge in sorted(edges)}
    before = {target: [source for source, end in over if end == target] for target in range(len(split))}
    ancestors = _ancestors(over, len(split))

    def bring(value: Value, target: int) -> None:
        maker = stage[value.maker]
        if maker == target or any(value in over[source, target] for source in before[target]):
            return
        passing = [source for source in before[target] if maker in ancestors[source]]
        source = maker if maker in before[target] else passing[-1]
        over[source, target].add(value)
        bring(value, source)

    for index, values in enumerate(read):
        for value in values:
            bring(value, stage[index])
    return {
        edge: tuple(sorted(values, key=lambda value: (value.name != "h", value.name)))
        for edge, values in over.items()
    }


def _ancestors(edges: Iterable[Edge], num_stages: int) -> list[set[int]]:
    """Of every stage, those that lead to it. Edges ascend."""
    found: list[set[int]] = [set() for _ in range(num_stages)]
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        found[target] |= {source} | found[source]
    return found
