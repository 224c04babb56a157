"""What a rank runs: stages of layers, and the executor that drives them through a schedule."""

from gnnpar.runtime.aggregation import Aggregation
from gnnpar.runtime.build import build_stage, needs_two_copies, pull_scales, slicing_faults
from gnnpar.runtime.delayed import DelayedOptimizer
from gnnpar.runtime.exchange import HistoryExchange
from gnnpar.runtime.executor import Executor
from gnnpar.runtime.parts import record_parts
from gnnpar.runtime.policies import POLICIES, WeightPolicy
from gnnpar.runtime.stage import OUT, Payload, Payloads, Slot, Stage
from gnnpar.runtime.weights import PassPlan, StageWeights

__all__ = [
    "OUT",
    "POLICIES",
    "Aggregation",
    "DelayedOptimizer",
    "Executor",
    "HistoryExchange",
    "PassPlan",
    "Payload",
    "Payloads",
    "Slot",
    "Stage",
    "StageWeights",
    "WeightPolicy",
    "build_stage",
    "needs_two_copies",
    "pull_scales",
    "slicing_faults",
    "record_parts",
]
