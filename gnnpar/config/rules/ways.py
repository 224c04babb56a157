"""Rules of stages that several processes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["way_faults"]


def way_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    ways, stages = v["parallel.ways"], v["parallel.stages"]
    if not isinstance(ways, int) and len(ways) != stages:
        yield (
            ("parallel.ways", "parallel.stages"),
            f"parallel.ways: {len(ways)} numbers for parallel.stages={stages}; give one a stage, or one "
            "number for all",
        )
