"""What a rank runs: stages of layers, and the executor that drives them through a schedule."""

from gnnpar.runtime.aggregation import Aggregation
from gnnpar.runtime.build import build_stage, needs_two_copies, pull_scales
from gnnpar.runtime.exchange import HistoryExchange
from gnnpar.runtime.executor import Executor
from gnnpar.runtime.stage import OUT, Payload, Payloads, Slot, Stage

__all__ = [
    "OUT",
    "Aggregation",
    "Executor",
    "HistoryExchange",
    "Payload",
    "Payloads",
    "Slot",
    "Stage",
    "build_stage",
    "needs_two_copies",
    "pull_scales",
]
