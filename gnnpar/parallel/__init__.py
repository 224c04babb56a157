"""How the ways of a stage share their work."""

from gnnpar.parallel.halo import Halo
from gnnpar.parallel.reading import Reading, reading

__all__ = ["Halo", "Reading", "reading"]
