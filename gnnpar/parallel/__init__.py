"""How the ways of a stage share their work."""

from gnnpar.parallel.bounded import BoundedHalo
from gnnpar.parallel.choose import halo_faults, make_halo
from gnnpar.parallel.features import FeatureSlices
from gnnpar.parallel.halo import Coming, Halo
from gnnpar.parallel.part_by_part import PartByPart
from gnnpar.parallel.peers import Peers, Product
from gnnpar.parallel.quantised import QuantisedHalo
from gnnpar.parallel.reading import Reading, reading
from gnnpar.parallel.sampled import SampledHalo
from gnnpar.parallel.stale import StaleHalo

__all__ = [
    "BoundedHalo",
    "Coming",
    "FeatureSlices",
    "Halo",
    "PartByPart",
    "Peers",
    "Product",
    "QuantisedHalo",
    "Reading",
    "SampledHalo",
    "StaleHalo",
    "halo_faults",
    "make_halo",
    "reading",
]
