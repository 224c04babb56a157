"""What the executor knows of stages and of micro-batches, whatever they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Parameter

from gnnpar.model.layer import Layer
from gnnpar.model.norm import BatchNorm
from gnnpar.model.trace import TensorSpec
from gnnpar.parallel import Halo
from gnnpar.runtime.local import LocalHead

__all__ = ["AnyStage", "MicroBatch", "StepReads"]


class MicroBatch(Protocol):
    """What runs as one on one process: a `Chunk`, or a `MiniBatch`. Hashable; its text names it in errors."""

    @property
    def index(self) -> int:
        """Tells which way of a column runs it (`Mesh.owner`)."""


class StepReads(Protocol):
    """What the micro-batches of one step read: `Reads`, or `SampledStep`."""

    @property
    def slots(self) -> Sequence[Sequence[MicroBatch]]:
        """Of every micro-batch of the schedule, what its ways run."""

    @property
    def exact(self) -> bool:
        """Whether the whole step is one micro-batch."""

    @property
    def kept(self) -> bool:
        """Whether a later step reads rows of this one."""

    def of(self, replica: int) -> Any:
        """What one copy of a bidirectional pipeline reads; handed on to its stages."""


class AnyStage(Protocol):
    """A run of consecutive layers on one process: `Stage`, which describes the methods, or `SampledStage`.

    Slots, payloads and reads are of one kind; which one is nothing to the executor.
    """

    layers: tuple[tuple[int, Layer], ...]
    receives: dict[int, tuple[TensorSpec, ...]]
    sends: dict[int, tuple[TensorSpec, ...]]
    head: LocalHead | None
    halo: Halo | None

    @property
    def targets(self) -> Any: ...

    def parameters(self) -> list[Parameter]: ...

    def batch_norms(self) -> list[BatchNorm]: ...

    def num_rows_in(self, batch: Any, reads: Any, /) -> int: ...

    def num_rows_out(self, batch: Any, reads: Any, /) -> int: ...

    def forward(
        self, slot: Any, payloads: Any, reads: Any, step: int, split: bool = False
    ) -> Mapping[int, Any]: ...

    def refresh(self, slot: Any, payloads: Any, reads: Any, step: int) -> Mapping[int, Any]: ...

    def loss(self, slot: Any) -> Tensor: ...

    def backward(self, slot: Any, gradients: Any, reads: Any, step: int) -> Mapping[int, Any]: ...

    def release(self) -> None: ...

    def weight_gradients(self, batches: Iterable[Any], /) -> None: ...
