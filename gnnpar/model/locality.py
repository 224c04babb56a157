"""Checks that a layer gives the same for some rows as for all, which cutting graphs into chunks rests on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gnnpar.batch.chunked import ChunkedGraph, make_block
from gnnpar.graph.block import Block
from gnnpar.graph.features import SparseRows
from gnnpar.graph.graph import Graph
from gnnpar.model.layer import Push
from gnnpar.model.tiny import NUM_VERTICES
from gnnpar.model.trace import Passage

__all__ = ["locality_faults", "tiny_parts"]

_OFFSETS = (0, 3, 8, NUM_VERTICES)


def tiny_parts(graph: Graph) -> list[tuple[Block, Tensor]]:
    """The probe graph in three chunks: of each, its block and the vertices of the columns."""
    chunked = ChunkedGraph(graph, _OFFSETS)
    return [make_block(chunked, chunk, graph.indptr, graph.indices, None) for chunk in chunked.chunks]


def locality_faults(passage: Passage) -> list[str]:
    """Where a layer treats rows differently when they come in three parts. `passage`: on the probe graph."""
    layer, cut, out = passage.layer, passage.cut, passage.out
    if layer.chunk_dependent or not isinstance(out, Tensor):  # none, or sparse features passed on
        return []
    parts = [_Part(passage, start, stop) for start, stop in pairwise(_OFFSETS)]
    z = passage.h if cut is None else passage.z
    faults = []
    if cut is not None and not _agree([layer.before(p.h, p.carries, p.rows) for p in parts], cut):
        faults.append(_fault("before"))
    if cut is not None and isinstance(layer.operator, Push):
        blocks = zip(tiny_parts(passage.whole.graph), parts, strict=True)
        if not _agree([layer.aggregate(cut[columns], block, p.rows) for (block, columns), p in blocks], z):
            faults.append(
                "aggregate() gives other values on a part of the graph than on the whole: "
                "it may look at the in-edges of the block's rows and at their sources only"
            )
    results = [layer.after(_slice(z, p.start, p.stop), p.h, p.carries, p.rows) for p in parts]
    if not _agree([result[0] if isinstance(result, tuple) else result for result in results], out):
        faults.append(_fault("after"))
    return faults


class _Part:
    """Some of the rows that went through a layer."""

    def __init__(self, passage: Passage, start: int, stop: int) -> None:
        rows = passage.rows
        self.start, self.stop = start, stop
        self.rows = replace(rows, ids=rows.ids[start:stop])
        self.h = _slice(passage.h, start, stop)
        self.carries = {name: _slice(value, start, stop) for name, value in passage.carries.items()}


def _fault(method: str) -> str:
    return (
        f"{method}() gives other values for some rows than for all: it must treat every row alone, "
        "or the layer set chunk_dependent = True"
    )


def _slice(x: Any, start: int, stop: int) -> Any:
    return x.rows(start, stop) if isinstance(x, SparseRows) else x[start:stop]


def _agree(parts: list[Tensor], whole: Tensor) -> bool:
    found = torch.cat(parts)
    if found.shape != whole.shape:
        return False
    tolerance = 1e4 * torch.finfo(whole.dtype).eps * max(1.0, float(whole.detach().abs().max()))
    return bool(((found - whole).abs() <= tolerance).all())
