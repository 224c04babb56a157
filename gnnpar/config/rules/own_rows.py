"""Rules of ways that keep rows of their own vertices only: slices of features, SAR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["own_rows_faults"]

_OF_HISTORIES = {"history.refresh_every": None, "history.store": "memory", "trace.history_error": False}
"""Key → its default."""


def own_rows_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where ways keep rows of their own only, a step is one exact micro-batch."""
    wanted = {
        "parallel.split": v["parallel.split"] == "features",
        "memory.sequential": v["memory.sequential"],
    }
    for key in [key for key, is_set in wanted.items() if is_set]:
        if v["batch.kind"] != "chunks":
            yield (
                (key, "batch.kind"),
                f"{key}: clusters read nothing of each other that could be exchanged; use batch.kind=chunks",
            )
        elif v["batch.num_chunks"] != 1:
            yield (
                (key, "batch.num_chunks"),
                f"{key}: ways keep rows of the current micro-batch only and no history, so it must be the "
                f"whole graph; set batch.num_chunks=1 (it is {v['batch.num_chunks']})",
            )
        for of_history, default in _OF_HISTORIES.items():
            if v[of_history] != default:
                yield (
                    (key, of_history),
                    f"{of_history}: {key} leaves no history that this could be about; leave it out",
                )
    if all(wanted.values()):
        yield (
            tuple(wanted),
            "memory.sequential: with parallel.split=features no row is fetched from others; choose one",
        )
