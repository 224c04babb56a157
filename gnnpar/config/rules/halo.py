"""Rules of the section `halo`: which keys a mode reads, and where one can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["halo_faults"]

_OF_MODE = {
    "halo.smooth_features": ("stale", 0.0),
    "halo.smooth_gradients": ("stale", 0.0),
    "halo.rate": ("sampled", 1.0),
    "halo.period": ("bounded", 1),
    "halo.bound": ("bounded", None),
    "halo.bits": ("quantised", None),
}
"""Key → the mode that reads it, and its default."""


def halo_faults(v: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(keys, fault) of every rule of the section `halo` that values by dotted key break."""
    mode, ways = v["halo.mode"], v["parallel.ways"]
    for key, (reader, default) in _OF_MODE.items():
        if mode != reader and v[key] != default:
            yield (
                (key, "halo.mode"),
                f"{key}: halo.mode={mode} does not read it; set halo.mode={reader} or leave it out",
            )
    if mode == "quantised" and v["halo.bits"] is None:
        yield ("halo.bits", "halo.mode"), "halo.bits: halo.mode=quantised needs it; use 8, 4 or 2"
    if mode == "exact":
        return
    for key, value in {"parallel.split": "vertices", "memory.sequential": False}.items():
        if v[key] != value:
            yield (
                ("halo.mode", key),
                f"halo.mode: {mode} rows are kept beside a way's own, which {key}={v[key]} does not do; use "
                f"{key}={str(value).lower()} or halo.mode=exact",
            )
    if (ways if isinstance(ways, int) else max(ways, default=1)) == 1:
        yield (
            ("halo.mode", "parallel.ways"),
            f"halo.mode: {mode} says how ways read each other's rows, but parallel.ways=1; use "
            "parallel.ways=2 or more, or halo.mode=exact",
        )
    if v["batch.kind"] == "clusters":
        yield (
            ("halo.mode", "batch.kind"),
            f"halo.mode: {mode} says how ways read each other's rows, but clusters read none; use "
            "batch.kind=chunks or halo.mode=exact",
        )
    elif v["batch.num_chunks"] > 1:
        # What a way may read late is then decided twice, by the order of the slots and by the halo.
        yield (
            ("halo.mode", "batch.num_chunks"),
            f"halo.mode: {mode} is defined where all chunks run together, but batch.num_chunks="
            f"{v['batch.num_chunks']} slots read each other from history; use batch.num_chunks=1 or "
            "halo.mode=exact",
        )
    if v["history.refresh_every"] is not None:
        yield (
            ("halo.mode", "history.refresh_every"),
            f"history.refresh_every: halo.mode={mode} reads no history that it could renew; leave it out",
        )
    if mode in ("stale", "bounded") and not v["history.warmup_steps"]:
        yield (
            ("halo.mode", "history.warmup_steps"),
            f"history.warmup_steps: with halo.mode={mode} the first rows that are read late are those of an "
            "exact step; use 1 or more",
        )
