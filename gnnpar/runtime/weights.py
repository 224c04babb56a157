"""`StageWeights`: the versions of one stage's weights, and the one that each pass sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gnnpar.errors import RunError
from gnnpar.runtime.policies import WeightPolicy

__all__ = ["PassPlan", "StageWeights", "delay_of", "rate_factor"]

Weights = list[Tensor]


@dataclass(frozen=True)
class PassPlan:
    """What a policy needs to know of the schedule, for one stage.

    Attributes:
        stage, num_stages: s and S.
        size: T, micro-batches an update.
        ahead: of every micro-batch, updates to look ahead, forward and backward; None: no prediction.
        entry: of every micro-batch, updates that the first stage had made when it entered.
        decay: PipeMare's D, what is left after the delay of an average's weight.
        horizon: updates over which PipeMare's rates rise to the given one; 0: at once.
    """

    stage: int
    num_stages: int
    size: int
    ahead: Callable[[int], tuple[int, int]] | None
    entry: Callable[[int], int]
    decay: float = 0.135
    horizon: int = 0


@dataclass(frozen=True)
class _Version:
    number: int
    weights: Weights
    velocity: Weights | None
    drift: Weights | None


class StageWeights:
    """Weights of one stage under a policy. Passes read whole versions, which nobody writes; the optimizer
    works on a copy of its own and leaves a new version with every update.

    A pass sees a version as the data of the model's own parameters. Autograd looks a parameter up when it
    differentiates, and so do products under `DeferredWeights`; hence where backward reads other weights than
    forward did (`WeightPolicy.rereads`), run the forward pass with split backward: gradients with respect to
    inputs then use the backward pass's weights, and activations are those of the forward pass. Parameters
    that are not factors of a product (attention vectors) may count with their forward values.

    Memory: a copy of the weights for the optimizer, one for every version in use
    (`WeightPolicy.num_versions`), one for velocities and one for PipeMare's average where there are any. An
    update costs one copy of the weights, or a few passes over them.

    Args:
        named: the stage's trained parameters, by global name.
        make_optimizer: builds the optimizer of parameters by name.
        keep: versions kept beside those in flight; a replay in one process needs older ones.

    Attributes:
        start: updates made before the program that runs.
        synchronous: for now updates do wait for all passes, and these read the newest weights.
    """

    def __init__(
        self,
        named: Mapping[str, Parameter],
        make_optimizer: Callable[[Mapping[str, Parameter]], Optimizer],
        policy: WeightPolicy,
        plan: PassPlan,
        keep: int | None = None,
    ) -> None:
        self.parameters = list(named.values())
        self.masters = [Parameter(p.detach().clone()) for p in self.parameters]
        self.optimizer = make_optimizer(dict(zip(named, self.masters, strict=True)))
        self.policy = policy
        self.plan = plan
        keep = keep or {"now": 1, "previous": 2, "entry": plan.num_stages}[policy.forward]
        first = [p.detach() for p in self.parameters]
        moving = policy.distances is not None or policy.corrects
        still = [torch.zeros_like(w) for w in first] if moving else None
        self._versions = deque([_Version(0, first, still, still if policy.corrects else None)], keep)
        self.synchronous = False
        self.start = self._asynchronous = 0
        self._read: dict[int, Weights] = {}
        self._predicted: dict[bool, tuple[int, Weights]] = {}

    @property
    def now(self) -> int:
        """Updates made."""
        return self._versions[-1].number

    @property
    def num_alive(self) -> int:
        """Versions that exist, predictions in use included."""
        lists = [version.weights for version in self._versions] + list(self._read.values())
        lists += [weights for _, weights in self._predicted.values()]
        return len({id(weights) for weights in lists})

    def forward(self, micro_batch: int, now: int | None = None) -> None:
        """Let the parameters show what the forward pass of a micro-batch reads.

        Args:
            now: updates made at the time of the pass, where that is in the past.
        """
        if self.synchronous:
            self.show_newest()
            return
        base = self._version(self._base(micro_batch, self.now if now is None else now))
        weights = self._seen(base, micro_batch, backward=False)
        if not self.policy.rereads:
            self._read[micro_batch] = weights
        self._show(weights)

    def backward(self, micro_batch: int, now: int | None = None) -> None:
        """Let them show what its backward pass reads."""
        if self.synchronous:
            return
        if not self.policy.rereads:
            self._show(self._read.pop(micro_batch))
            return
        base = self._version(self.now if now is None else now)
        self._show(self._seen(base, micro_batch, backward=True))

    def step(self) -> None:
        """One update from the parameters' gradients, which are then forgotten."""
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad, parameter.grad = parameter.grad, None
        factor = self._rate_factor()
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._asynchronous += not self.synchronous
        with torch.no_grad():
            self._versions.append(self._next(self._versions[-1], [m.detach().clone() for m in self.masters]))
        for master in self.masters:
            master.grad = None

    def settle(self) -> None:
        """At the end of a program, whose micro-batches start from 0 again: let the parameters show the newest
        version, and forget passes."""
        self.start = self.now
        self._read.clear()
        self._predicted.clear()
        self.show_newest()

    def show_newest(self) -> None:
        """Let the parameters show the newest version."""
        self._show(self._versions[-1].weights)

    def _rate_factor(self) -> float:
        if self.synchronous or not self.policy.corrects:
            return 1.0
        delay = delay_of(self.plan.stage, self.plan.num_stages, self.plan.size)
        return rate_factor(delay, self._asynchronous, self.plan.horizon)

    def _base(self, micro_batch: int, now: int) -> int:
        if self.policy.forward == "previous":
            return max(0, self._update_of(micro_batch) - 1)
        return self.start + self.plan.entry(micro_batch) if self.policy.forward == "entry" else now

    def _update_of(self, micro_batch: int) -> int:
        return self.start + micro_batch // self.plan.size

    def _version(self, number: int) -> _Version:
        place = number - self._versions[0].number
        if not 0 <= place < len(self._versions):
            raise RunError(
                f"stage {self.plan.stage}: weights after {number} updates are asked for, but there are those "
                f"after {self._versions[0].number} to {self.now}"
            )
        return self._versions[place]

    def _seen(self, base: _Version, micro_batch: int, backward: bool) -> Weights:
        update = self._update_of(micro_batch)
        if self.policy.once and self._predicted.get(backward, (-1,))[0] == update:
            return self._predicted[backward][1]
        weights = base.weights
        if self.plan.ahead is not None:
            distance = self.plan.ahead(micro_batch)[backward]
            assert base.velocity is not None
            if distance:
                weights = [w + distance * v for w, v in zip(base.weights, base.velocity, strict=True)]
        elif self.policy.corrects and backward:
            delay = delay_of(self.plan.stage, self.plan.num_stages, self.plan.size)
            assert base.drift is not None
            weights = [w - delay * d for w, d in zip(base.weights, base.drift, strict=True)]
        if self.policy.once:
            self._predicted[backward] = update, weights
        return weights

    def _next(self, last: _Version, weights: Weights) -> _Version:
        if last.velocity is None:
            return _Version(last.number + 1, weights, None, None)
        velocity = [w - before for w, before in zip(weights, last.weights, strict=True)]
        drift = last.drift
        delay = delay_of(self.plan.stage, self.plan.num_stages, self.plan.size)
        if drift is not None and delay:
            share = self.plan.decay ** (1 / delay)
            drift = [share * d + (1 - share) * v for d, v in zip(drift, velocity, strict=True)]
        return _Version(last.number + 1, weights, velocity, drift)

    def _show(self, weights: Sequence[Tensor]) -> None:
        for parameter, data in zip(self.parameters, weights, strict=True):
            parameter.data = data


def delay_of(stage: int, num_stages: int, size: int) -> float:
    """PipeMare's τ of a forward pass, in updates: (2 (S-1-s) + 1) / T (Yang et al. 2021, §2). A single stage
    has none, where their formula gives 1/T."""
    return 0.0 if num_stages == 1 else (2 * (num_stages - 1 - stage) + 1) / size


def rate_factor(delay: float, step: int, horizon: int) -> float:
    """PipeMare's T1 (Yang et al. 2021, §3.1): 1 / max(1, τ)^p with p = 1 - min(step / horizon, 1).

    The maximum is ours: a delay below one update would raise the rate.
    """
    if horizon <= 0:
        return 1.0
    return float(max(1.0, delay) ** -(1 - min(step / horizon, 1)))
