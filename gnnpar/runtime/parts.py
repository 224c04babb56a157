"""Spans for the parts of a stage: aggregations and the halo, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gnnpar.batch import Chunk
from gnnpar.runtime.aggregation import Aggregation
from gnnpar.runtime.stage import Stage
from gnnpar.trace import Recorder

__all__ = ["record_parts"]

_PARTS = {
    "forward": "aggregate",
    "forward_mixed": "aggregate",
    "push_back": "aggregate back",
    "push_back_mixed": "aggregate back",
    "pull_back": "aggregate back",
    "share": "halo",
    "share_back": "halo",
}
"""Methods of an aggregation → kind of their spans."""


def record_parts(stages: Iterable[object], recorder: Recorder) -> None:
    """Have the aggregations of stages leave spans, by layer and chunk (for `halo`: by layer).

    What is left of an action is row-wise work. The backward of operators on single edges is a part of that of
    the segment around them, and counts as row-wise. What is no `Stage` has no such parts. Stages that are not
    given to this know nothing of it, so that a run without a trace pays nothing.
    """
    for stage in stages:
        if isinstance(stage, Stage):
            _record_stage(stage, recorder)


def _record_stage(stage: Stage, recorder: Recorder) -> None:
    layers = [index for index, layer in stage.layers if layer.operator is not None]
    for layer, aggregation in zip(layers, stage.aggregations, strict=True):
        for name, kind in _PARTS.items():
            if hasattr(aggregation, name):
                _record(aggregation, name, kind, layer, recorder)


def _record(aggregation: Aggregation, name: str, kind: str, layer: int, recorder: Recorder) -> None:
    run: Callable[..., Any] = getattr(aggregation, name)

    def recorded(place: Any, *args: Any, **keys: Any) -> Any:
        chunk = place.index if isinstance(place, Chunk) else -1
        with recorder.span(kind, layer=layer, batch=chunk):
            return run(place, *args, **keys)

    setattr(aggregation, name, recorded)
