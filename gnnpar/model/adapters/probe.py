"""Tries a foreign layer on 12 vertices: its results on parts of the graph against those on the whole."""

from __future__ import annotations

import copy
import traceback
import warnings

import torch
from torch import Tensor

from gnnpar.graph.block import Block
from gnnpar.graph.graph import Graph
from gnnpar.model.adapters.foreign import Foreign, Strategy
from gnnpar.model.locality import tiny_parts
from gnnpar.model.rows import Rows
from gnnpar.model.tiny import NUM_VERTICES
from gnnpar.model.trace import Passage
from gnnpar.model.whole import WholeGraph

__all__ = ["settle", "settle_foreign"]

_TOLERANCE = 1e-9


def settle(passage: Passage) -> list[str]:
    """Find how the foreign module inside a layer can run on parts of a graph.

    Args:
        passage: of the layer, on the probe graph.

    Returns:
        Why it is refused; empty where it is not.
    """
    if passage.cut is None:
        return []
    foreign = [module for module in passage.layer.modules() if isinstance(module, Foreign)]
    faults = [settle_foreign(module, passage.cut, passage.whole.graph) for module in foreign]
    return [fault for fault in faults if fault is not None]


def settle_foreign(layer: Foreign, cut: Tensor, graph: Graph) -> str | None:
    """Set `layer.strategy`, or say why there is none. The module itself is not run: a copy in float64 is."""
    with warnings.catch_warnings():
        # What a module has to say of 12 made-up vertices is of no use to the user.
        warnings.simplefilter("ignore")
        return _settle(layer, cut, graph)


def _settle(layer: Foreign, cut: Tensor, graph: Graph) -> str | None:
    trial = copy.deepcopy(layer).double()
    x = cut.detach().double().requires_grad_()
    graph = graph.to_dtype(torch.float64)
    try:
        whole = _on_whole(trial, x, graph)
    except Exception as error:  # whatever a foreign module raises is the reason
        return f"cannot run in float64 on a directed graph of 12 vertices: {_first_line(error)}"
    if not bool(whole.isfinite().all()):
        return "gives values that are not finite on a directed graph of 12 vertices"
    expected = _with_gradients(trial, x, whole)
    parts = tiny_parts(graph)
    failed: dict[Strategy, str] = {}
    for strategy in layer.strategies:
        trial.strategy = strategy
        try:
            found = _with_gradients(trial, x, _on_parts(trial, x, parts))
        except Exception as error:  # as above
            failed[strategy] = _first_line(error)
            continue
        worst = max(_difference(a, b) for a, b in zip(found, expected, strict=True))
        if worst <= _TOLERANCE:
            layer.strategy = strategy
            return None
        failed[strategy] = f"differs by {worst:.1g}"
    trial.strategy = None
    return _reason(trial, x.detach(), graph, failed)


def _rows(ids: Tensor) -> Rows:
    return Rows(ids, seed=0, step=0, layer=1, training=False)


def _on_whole(layer: Foreign, x: Tensor, graph: Graph) -> Tensor:
    out = layer.aggregate(x, WholeGraph(graph).block, _rows(graph.node_ids))
    if len(out) != NUM_VERTICES:
        raise ValueError(f"gives {len(out)} rows for {NUM_VERTICES} vertices")
    return out


def _on_parts(layer: Foreign, x: Tensor, parts: list[tuple[Block, Tensor]]) -> Tensor:
    return torch.cat([layer.aggregate(x[vertices], block, _rows(block.row_ids)) for block, vertices in parts])


def _with_gradients(layer: Foreign, x: Tensor, out: Tensor) -> list[Tensor]:
    """The result, and the gradients of a fixed function of it with respect to the cut and all parameters."""
    draw = torch.Generator().manual_seed(0)
    loss = (out * torch.rand(out.shape, dtype=out.dtype, generator=draw)).sum()
    wanted = [x, *(p for p in layer.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return [out.detach(), *gradients]


def _difference(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    worst = float((a - b).abs().max()) / max(1.0, float(b.abs().max()))
    return worst if worst == worst else float("inf")


def _reason(layer: Foreign, x: Tensor, graph: Graph, failed: dict[Strategy, str]) -> str:
    reads = _dependence(layer, x, WholeGraph(graph).block)
    edges = torch.zeros(NUM_VERTICES, NUM_VERTICES, dtype=torch.bool)
    edges[graph.destinations, graph.indices.long()] = True
    own = torch.eye(NUM_VERTICES, dtype=torch.bool)
    beyond = reads & ~edges & ~own
    if bool((_edgeless_dependence(layer, x, graph) & ~own).any()):
        return "reads vertices it has no edge from (all rows at once): it cannot run on a part of them"
    if bool((beyond & edges.t()).any()) and not bool((beyond & ~edges.t()).any()):
        return (
            "reads the sources of out-going edges too: give the graph both directions and use a plain layer"
        )
    if bool(beyond.any()):
        row, vertex = beyond.nonzero()[0].tolist()
        return (
            f"reads more than one hop (row {row} depends on vertex {vertex}, which has no edge to it): "
            "use K layers of one hop each"
        )
    if bool(graph.edge_index[0].eq(graph.edge_index[1]).any()):
        return (
            "adds self loops of its own, and whether a neighbour has a stored one does not show in a part "
            "of the graph: remove the graph's self loops"
        )
    tried = "; ".join(f"{strategy}: {what}" for strategy, what in failed.items())
    return (
        "reads one hop, but needs something that a part of the graph does not show, such as the neighbours' "
        f"own in-edges or the largest degree ({tried})"
    )


def _dependence(layer: Foreign, x: Tensor, block: Block) -> Tensor:
    """`[12, 12]` bool: whether row v of the result changes when row u of the cut does."""
    rows = _rows(block.row_ids)
    with torch.no_grad():
        base = layer.aggregate(x, block, rows)
        changed = torch.zeros(NUM_VERTICES, NUM_VERTICES, dtype=torch.bool)
        for u in range(NUM_VERTICES):
            moved = x.clone()
            moved[u] = moved[u] * 1.5 + 0.25
            delta = (layer.aggregate(moved, block, rows) - base).abs().flatten(1).amax(1)
            changed[:, u] = delta > _TOLERANCE
    return changed


def _edgeless_dependence(layer: Foreign, x: Tensor, graph: Graph) -> Tensor:
    """As `_dependence`, on a graph without edges; all False where the module cannot run there."""
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=NUM_VERTICES)
    weight = None if graph.edge_weight is None else graph.edge_weight[:0]
    attr = None if graph.edge_attr is None else graph.edge_attr[:0]
    try:
        return _dependence(layer, x, WholeGraph(empty.replace(edge_weight=weight, edge_attr=attr)).block)
    except Exception:  # no edges at all is not what the module is asked for
        return torch.zeros(NUM_VERTICES, NUM_VERTICES, dtype=torch.bool)


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    if not text:
        # A bare assert says nothing but its own line.
        frames = traceback.extract_tb(error.__traceback__)
        text = (frames[-1].line or "") if frames else ""
    return f"{type(error).__name__}: {text}"
