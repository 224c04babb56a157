"""`DelayedOptimizer`: an asynchronous pipeline replayed in one process, to study what its staleness does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch.nn import Parameter
from torch.optim import Optimizer

from gnnpar.errors import Faults
from gnnpar.model.fused import WeightGradient
from gnnpar.runtime.deferred import DeferredWeights, add_weight_gradients
from gnnpar.runtime.policies import POLICIES
from gnnpar.runtime.weights import PassPlan, StageWeights

__all__ = ["DelayedOptimizer"]


class DelayedOptimizer:
    """Updates a model as an asynchronous pipeline of S stages would, reading and writing the same weights in
    the same order, without a pipeline.

        optimizer = DelayedOptimizer([stage.named_parameters() …], make_sgd, "stash")
        for batch in batches:
            with optimizer.forward():
                loss = criterion(model(batch.x), batch.y)
            with optimizer.backward():
                loss.backward()

    Micro-batch m goes forward on stage s after ⌊max(0, m - (S-1-s)) / T⌋ updates of that stage, and backward
    after ⌊m / T⌋, as in 1F1B without a flush. After every T-th backward all stages update. Cost: that of the
    model, plus S / T + 3 versions of the weights.

    Args:
        stages: trained parameters by name, stage after stage.
        make_optimizer: builds the optimizer of one stage's parameters by name.
        policy: a row of `POLICIES`.
        micro_batches: T, an update takes the gradients of so many.
        decay: PipeMare's D. horizon: updates over which PipeMare's rates rise to the given one; 0: at once.

    Raises:
        InputError: unknown policy, no stages, counts below one.
    """

    def __init__(
        self,
        stages: Sequence[Mapping[str, Parameter]],
        make_optimizer: Callable[[Mapping[str, Parameter]], Optimizer],
        policy: str,
        *,
        micro_batches: int = 1,
        decay: float = 0.135,
        horizon: int = 0,
    ) -> None:
        faults = Faults("DelayedOptimizer")
        if policy not in POLICIES or POLICIES[policy].detached:
            known = ", ".join(name for name, row in POLICIES.items() if not row.detached)
            faults.add(f"policy: {policy!r} is not one of {known}")
        for key, value in (("stages", len(stages)), ("micro_batches", micro_batches)):
            if value < 1:
                faults.add(f"{key}: must be at least 1, got {value}")
        faults.raise_if_any()
        self.policy = POLICIES[policy]
        self.size = micro_batches
        self.micro_batch = 0
        self._pending: list[WeightGradient] = []
        count = len(stages)
        self.stages = [
            StageWeights(
                named,
                make_optimizer,
                self.policy,
                self._plan(s, count, decay, horizon),
                count // micro_batches + 3,
            )
            for s, named in enumerate(stages)
        ]

    def _plan(self, stage: int, num_stages: int, decay: float, horizon: int) -> PassPlan:
        distances = self.policy.distances
        ahead = None
        if distances is not None:
            fixed = distances(stage, num_stages, self.size)
            ahead = lambda micro_batch: fixed  # noqa: E731
        return PassPlan(
            stage,
            num_stages,
            self.size,
            ahead,
            lambda micro_batch: max(0, micro_batch - (num_stages - 1)) // self.size,
            decay,
            horizon,
        )

    @contextmanager
    def forward(self) -> Iterator[None]:
        """The forward pass of the next micro-batch runs inside."""
        last = len(self.stages) - 1
        for s, stage in enumerate(self.stages):
            updates = max(0, self.micro_batch - (last - s)) // self.size
            stage.forward(self.micro_batch, stage.start + updates)
        if self.policy.rereads:
            with DeferredWeights(self._pending):
                yield
        else:
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Its backward pass runs inside; then all stages update, where it was the last of its update."""
        for stage in self.stages:
            stage.backward(self.micro_batch)
        yield
        add_weight_gradients(self._pending)
        self._pending.clear()
        self.micro_batch += 1
        if self.micro_batch % self.size == 0:
            for stage in self.stages:
                stage.step()

    def flush(self) -> None:
        """Let the pipeline run empty before the next micro-batch, as at the end of an epoch."""
        self.micro_batch = 0
        for stage in self.stages:
            stage.settle()

    def show_newest(self) -> None:
        """Let the model's parameters show the newest weights, as for evaluation; passes may go on then."""
        for stage in self.stages:
            stage.show_newest()
