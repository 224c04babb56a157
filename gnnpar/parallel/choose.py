"""Which `Halo` a configuration asks for."""

from __future__ import annotations

from gnnpar.batch import ChunkedGraph
from gnnpar.config.schema import RunConfig
from gnnpar.dist import Mesh, Transport
from gnnpar.model import Model, Push
from gnnpar.parallel.bounded import BoundedHalo
from gnnpar.parallel.halo import Halo
from gnnpar.parallel.quantised import QuantisedHalo
from gnnpar.parallel.sampled import SampledHalo
from gnnpar.parallel.stale import StaleHalo

__all__ = ["halo_faults", "make_halo"]


def make_halo(
    config: RunConfig, chunked: ChunkedGraph, mesh: Mesh, column: int, way: int, transport: Transport
) -> Halo | None:
    """The exchange of one process with the other ways of its column; None where nothing is exchanged."""
    if mesh.ways[column] == 1 or config.batch.independent:
        return None
    halo, place = config.halo, (chunked, mesh, column, way, transport)
    if halo.mode == "stale":
        return StaleHalo(*place, (halo.smooth_features, halo.smooth_gradients))
    if halo.mode == "sampled":
        return SampledHalo(*place, halo.rate, config.seed)
    if halo.mode == "bounded":
        return BoundedHalo(*place, halo.period, halo.bound)
    if halo.mode == "quantised":
        assert halo.bits is not None
        return QuantisedHalo(*place, halo.bits, config.seed)
    return Halo(*place)


def halo_faults(config: RunConfig, model: Model) -> list[str]:
    """Why the ways cannot exchange rows of this model as the configuration says."""
    push = {type(layer).__name__ for layer in model.all_layers() if isinstance(layer.operator, Push)}
    if config.halo.mode != "sampled" or not push:
        return []
    return [
        "halo.mode: sampled rows are rescaled, which is right on average for fixed linear aggregations, not "
        f"for {', '.join(sorted(push))}; use halo.mode=stale, exact, or another model"
    ]
