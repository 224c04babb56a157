"""Weights of stages that update without waiting for each other, as the configuration and the schedule say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch.nn import Parameter

from gnnpar.config.schema import RunConfig
from gnnpar.runtime import POLICIES, PassPlan, StageWeights
from gnnpar.schedule import Kind, Schedule, updates_before, updates_until_return
from gnnpar.train.optim import build_optimizer

__all__ = ["make_weights"]


def make_weights(
    config: RunConfig, schedule: Schedule, stage: int, named: Mapping[str, Parameter]
) -> StageWeights:
    """Those of one stage's trained parameters, by global name. Not for `weights.policy=flush`."""
    weights = config.weights
    policy = POLICIES[weights.policy]
    size = schedule.num_micro_batches // schedule.num_updates
    ahead: Callable[[int], tuple[int, int]] | None = None
    if policy.distances is not None and weights.distance == "paper":
        fixed = policy.distances(stage, schedule.num_stages, size)
        ahead = dict.fromkeys(range(schedule.num_micro_batches), fixed).__getitem__
    elif policy.distances is not None:
        there, back = (updates_until_return(schedule, kind)[stage] for kind in (Kind.F, Kind.B))
        ahead = list(zip(there, back, strict=True)).__getitem__
    plan = PassPlan(
        stage,
        schedule.num_stages,
        size,
        ahead,
        updates_before(schedule, Kind.F)[0].__getitem__,
        weights.decay,
        weights.horizon,
    )
    return StageWeights(
        named, lambda those: build_optimizer(those, config.optimizer, config.train), policy, plan
    )
