"""What a rank runs: stages of layers, and the executor that drives them through a schedule."""

from gnnpar.runtime.aggregation import Aggregation
from gnnpar.runtime.build import (
    build_sampled_stage,
    build_stage,
    needs_two_copies,
    pull_scales,
    slicing_faults,
)
from gnnpar.runtime.delayed import DelayedOptimizer
from gnnpar.runtime.exchange import HistoryExchange
from gnnpar.runtime.executor import Executor
from gnnpar.runtime.interface import AnyStage, StepReads
from gnnpar.runtime.parts import record_parts
from gnnpar.runtime.policies import POLICIES, WeightPolicy
from gnnpar.runtime.sampled import SampledStage
from gnnpar.runtime.stage import OUT, Payload, Payloads, Slot, Stage
from gnnpar.runtime.variates import ControlVariates
from gnnpar.runtime.weights import PassPlan, StageWeights

__all__ = [
    "OUT",
    "POLICIES",
    "Aggregation",
    "AnyStage",
    "ControlVariates",
    "DelayedOptimizer",
    "Executor",
    "HistoryExchange",
    "PassPlan",
    "Payload",
    "Payloads",
    "SampledStage",
    "Slot",
    "Stage",
    "StageWeights",
    "StepReads",
    "WeightPolicy",
    "build_sampled_stage",
    "build_stage",
    "needs_two_copies",
    "pull_scales",
    "slicing_faults",
    "record_parts",
]
