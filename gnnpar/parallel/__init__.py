"""How the ways of a stage share their work."""

from gnnpar.parallel.features import FeatureSlices
from gnnpar.parallel.halo import Coming, Halo
from gnnpar.parallel.part_by_part import PartByPart
from gnnpar.parallel.peers import Peers, Product
from gnnpar.parallel.reading import Reading, reading

__all__ = ["Coming", "FeatureSlices", "Halo", "PartByPart", "Peers", "Product", "Reading", "reading"]
