"""Events and counters of a run (a leaf package: imports nothing of gnnpar)."""

from gnnpar.trace.recorder import Event, Recorder

__all__ = ["Event", "Recorder"]
