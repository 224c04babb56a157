"""`Passage`: one segment with the aggregations on both sides of it, forward and backward over one chunk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.history import Reads
from gnnpar.model.fused import Fused, WeightGradient
from gnnpar.runtime.aggregation import Aggregation, PullAggregation
from gnnpar.runtime.deferred import DeferredWeights, add_weight_gradients
from gnnpar.runtime.segment import RowsOf, Segment, State
from gnnpar.runtime.targets import Targets

__all__ = ["AutogradPassage", "FusedPassage", "Part", "Passage", "differentiate"]


@dataclass(slots=True)
class Part:
    """A passage over one chunk, from forward to backward.

    Attributes:
        entered: the leaves it started from.
        left: what it made; a tensor that is one of `entered` passed through.
        cut, loss: X for the aggregation ahead, or the chunk's share of the loss.
        pending: where weight gradients go that are to be done later; None where backward does them at once.
    """

    entered: State
    left: State | None = None
    cut: Tensor | None = None
    loss: Tensor | None = None
    pending: list[WeightGradient] | None = None


class Passage(Protocol):
    """What a stage runs between two aggregations."""

    def forward(self, chunk: Chunk, part: Part, reads: Reads, rows_of: RowsOf, keep: bool) -> None:
        """Aggregate behind, run the segment from `part.entered`, store the cut for the aggregation ahead.

        Args:
            keep: False where the backward pass computes the segment again, so nothing need be kept.
        """

    def backward(
        self,
        chunk: Chunk,
        part: Part,
        cut_gradient: Tensor | None,
        following: State,
        reads: Reads,
        rows_of: RowsOf,
    ) -> None:
        """Leave gradients in `part.entered`'s leaves, in the parameters, and D with the aggregation behind.

        Args:
            cut_gradient: ∂X `[n, K]`, where an aggregation is ahead.
            following: the leaves that came after `part.left`, with their gradients.
        """

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        """∂X `[n, K]` of the aggregation behind, once all chunks of the slot have run backward."""


@dataclass(frozen=True)
class AutogradPassage:
    """Any segment: autograd differentiates it, on its own.

    Attributes:
        behind, ahead: aggregations, None at the ends of a stage.
        targets: where the passage ends the last stage.
    """

    segment: Segment
    behind: Aggregation | None
    ahead: Aggregation | None
    targets: Targets | None

    def forward(self, chunk: Chunk, part: Part, reads: Reads, rows_of: RowsOf, keep: bool) -> None:
        with torch.set_grad_enabled(keep):
            self._run(part, chunk, reads, rows_of, again=False)
        if self.ahead is not None:
            assert part.cut is not None
            self.ahead.write(chunk, part.cut.detach(), reads)

    def backward(
        self,
        chunk: Chunk,
        part: Part,
        cut_gradient: Tensor | None,
        following: State,
        reads: Reads,
        rows_of: RowsOf,
    ) -> None:
        if part.left is None:
            self._run(part, chunk, reads, rows_of, again=True)
        if part.loss is not None:
            differentiate([part.loss], [torch.ones_like(part.loss)])
        else:
            differentiate(*_gradients(part, cut_gradient, following))
        if self.behind is not None:
            if part.pending is not None and isinstance(self.behind, PullAggregation):
                _copy_from(self.behind.z, part.pending)
            self.behind.push_back(chunk, reads)

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        assert self.behind is not None
        return self.behind.pull_back(chunk, reads)

    def _run(self, part: Part, chunk: Chunk, reads: Reads, rows_of: RowsOf, again: bool) -> None:
        with nullcontext() if part.pending is None else DeferredWeights(part.pending):
            self._run_segment(part, chunk, reads, rows_of, again)

    def _run_segment(self, part: Part, chunk: Chunk, reads: Reads, rows_of: RowsOf, again: bool) -> None:
        z = None
        if self.behind is not None:
            aggregate = self.behind.replay if again else self.behind.forward
            z = aggregate(chunk, rows_of(self.segment.index_behind), reads)
        if self.targets is None:
            part.cut, part.left = self.segment.run(z, part.entered, rows_of)
            return
        rows = self.targets.rows(chunk)
        selects = self.segment.ends_row_by_row
        _, part.left = self.segment.run(z, part.entered, rows_of, rows if selects else None)
        assert part.left.h is not None
        part.loss = self.targets.loss(
            part.left.h if selects else part.left.h[rows], chunk, reads.divisor(chunk)
        )


@dataclass(frozen=True)
class FusedPassage:
    """A segment that two neighbouring layers know how to run, and to differentiate, in a few passes."""

    fused: Fused
    index_ahead: int
    behind: PullAggregation
    ahead: PullAggregation

    def forward(self, chunk: Chunk, part: Part, reads: Reads, rows_of: RowsOf, keep: bool) -> None:
        residual = part.entered.carries[self.fused.residual].detach()
        z = self.behind.forward_mixed(chunk, reads, residual, self.fused.share)
        out = self.ahead.rows_to_write(chunk, z, reads)
        self.fused.forward(z, rows_of(self.index_ahead), self.ahead.column_scale(chunk), out)
        part.left = State(None, part.entered.carries)

    def backward(
        self,
        chunk: Chunk,
        part: Part,
        cut_gradient: Tensor | None,
        following: State,
        reads: Reads,
        rows_of: RowsOf,
    ) -> None:
        assert cut_gradient is not None
        z, out = self.behind.stored_z(chunk), self.ahead.stored_cut(chunk, reads)
        gradient, of_weight = self.fused.backward(cut_gradient, out, z)
        if part.pending is None:
            add_weight_gradients([of_weight])
        else:
            # D is about to take the place of z.
            part.pending.append(replace(of_weight, left=z.clone()))
        residual = part.entered.carries[self.fused.residual]
        if residual.grad is None:
            residual.grad = torch.zeros_like(residual)
        self.behind.push_back_mixed(chunk, gradient, self.fused.share, residual.grad)

    def pull_back(self, chunk: Chunk, reads: Reads) -> Tensor:
        return self.behind.pull_back(chunk, reads)


def _gradients(
    part: Part, cut_gradient: Tensor | None, following: State
) -> tuple[list[Tensor], list[Tensor]]:
    """What a segment made, and the gradients that came back for it."""
    assert part.left is not None
    made = [(part.cut, cut_gradient)]
    if following.h is not None:
        made.append((part.left.h, following.h.grad))
    for name, tensor in part.left.carries.items():
        # A carry that passed through is the same leaf before and after: its gradient is already there.
        if tensor is not part.entered.carries.get(name) and name in following.carries:
            made.append((tensor, following.carries[name].grad))
    pairs = [(tensor, gradient) for tensor, gradient in made if tensor is not None and gradient is not None]
    return [tensor for tensor, _ in pairs], [gradient for _, gradient in pairs]


def _copy_from(buffer: Tensor, pending: list[WeightGradient]) -> None:
    """Weight gradients still to be done may need Z as it was, whose place D is about to take."""

    def copied(tensor: Tensor) -> Tensor:
        inside = tensor.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
        return tensor.clone() if inside else tensor

    for place, one in enumerate(pending):
        left = None if one.left is None else copied(one.left)
        pending[place] = replace(one, left=left, right=copied(one.right))


def differentiate(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Autograd backward from those of `outputs` that have a graph."""
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if pairs:
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
