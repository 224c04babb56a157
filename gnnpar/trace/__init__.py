"""Events and counters of a run, and what they tell. Imports nothing of gnnpar but its errors."""

from gnnpar.trace.log import EVENT, EventLog, Log, read_log
from gnnpar.trace.recorder import Recorder

__all__ = ["EVENT", "EventLog", "Log", "Recorder", "read_log"]
