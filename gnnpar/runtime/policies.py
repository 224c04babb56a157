"""`WeightPolicy`: which weights a forward and a backward pass read, where updates do not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["POLICIES", "Distances", "WeightPolicy"]

Distances = Callable[[int, int, int], tuple[int, int]]
"""(stage s, stages S, micro-batches an update T) → updates to look ahead, forward and backward."""


@dataclass(frozen=True)
class WeightPolicy:
    """A row of the table of asynchronous pipelines.

    Attributes:
        forward: version that a forward pass starts from: the newest ("now"); that after k-1 updates, for
            micro-batches of update k, counted from 0 ("previous"); or that of the first stage when the
            micro-batch entered it ("entry").
        backward: "forward", the weights of the forward pass; or "now", the newest.
        distances: how far passes predict weights by their velocity W_t - W_{t-1}; None: not at all.
        once: one prediction serves all micro-batches of an update (XPipe's bellwether).
        corrects: subtract from the newest weights, in the backward pass, how far they are estimated to have
            moved since the forward pass (PipeMare's T2).
        detached: for schedules that carry no gradient between stages.
        paper: where it was published.
    """

    forward: Literal["now", "previous", "entry"]
    backward: Literal["now", "forward"]
    paper: str
    distances: Distances | None = None
    once: bool = False
    corrects: bool = False
    detached: bool = False

    @property
    def rereads(self) -> bool:
        """True where a backward pass reads other weights than its forward pass did."""
        return self.backward == "now"

    def num_versions(self, stage: int, num_stages: int) -> int:
        """Most weights of a stage alive at once: the newest and older ones that passes in flight still read
        (one micro-batch an update), predictions included."""
        if self.detached:
            return 1
        if self.forward == "previous":
            return min(2, num_stages)
        if self.forward == "entry":
            return num_stages
        if self.backward == "forward":
            return num_stages - stage
        return 2 if self.distances or self.corrects else 1


def _spectrain(stage: int, num_stages: int, size: int) -> tuple[int, int]:
    return stage // 2 + num_stages - stage - 1, stage // 2


def _xpipe(stage: int, num_stages: int, size: int) -> tuple[int, int]:
    return int((size + num_stages - stage / 2 - 2) // size), (size + stage // 2 - 1) // size


def _pipeoptim(stage: int, num_stages: int, size: int) -> tuple[int, int]:
    return num_stages - stage - 1, 0


POLICIES: Mapping[str, WeightPolicy] = MappingProxyType(
    {
        "live": WeightPolicy("now", "now", "Gaunt et al., 2017 (AMPNet)"),
        "stash": WeightPolicy("now", "forward", "Narayanan et al., SOSP 2019 (PipeDream)"),
        "vertical": WeightPolicy("entry", "forward", "Narayanan et al., SOSP 2019 (vertical sync)"),
        "double": WeightPolicy("previous", "forward", "Narayanan et al., ICML 2021 (PipeDream-2BW)"),
        "spectrain": WeightPolicy("now", "now", "Chen et al., 2018 (SpecTrain)", _spectrain),
        "xpipe": WeightPolicy("now", "now", "Guan et al., 2019 (XPipe)", _xpipe, once=True),
        "pipeoptim": WeightPolicy("now", "now", "Guan et al., 2023 (PipeOptim)", _pipeoptim),
        "pipemare": WeightPolicy("now", "now", "Yang et al., MLSys 2021 (PipeMare)", corrects=True),
        "local": WeightPolicy("now", "forward", "Guo et al., 2024 (PPLL)", detached=True),
    }
)
