"""`SampledStage`: a run of consecutive layers on one rank, over mini-batches with structures of their own.

Mini-batches read nothing of each other, so each has one autograd graph over the whole stage. Only its
aggregations are not autograd's: see `gnnpar.runtime.on_block`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.batch import Batch, MiniBatch, SampledStep
from gnnpar.errors import RunError
from gnnpar.graph.features import SparseRows
from gnnpar.model.fused import WeightGradient
from gnnpar.model.layer import FEATURES, Layer
from gnnpar.model.norm import BatchNorm
from gnnpar.model.rows import Rows
from gnnpar.model.trace import TensorSpec
from gnnpar.parallel import Halo
from gnnpar.runtime.deferred import DeferredWeights, add_weight_gradients
from gnnpar.runtime.local import LocalHead
from gnnpar.runtime.on_block import aggregate
from gnnpar.runtime.passage import differentiate
from gnnpar.runtime.segment import State, cut_segments
from gnnpar.runtime.stage import Payload, leaf_gradients, leaves_of, pack
from gnnpar.runtime.targets import summed_loss
from gnnpar.runtime.variates import ControlVariates

__all__ = ["SampledStage"]

_Payloads = dict[int, dict[MiniBatch, Payload]]


@dataclass(slots=True)
class _Flight:
    """A mini-batch between its forward and its backward pass.

    Attributes:
        entered: the leaves that it started from.
        left: what it made, with autograd's graph; None where backward makes it again.
        pending: where weight gradients go that are to be done later; None where backward does them at once.
    """

    entered: State
    left: State | None
    loss: Tensor | None
    pending: list[WeightGradient] | None


class SampledStage:
    """Some consecutive layers of a model, for mini-batches, on one rank; to the executor it is a `Stage`.

    After every aggregation rows and carries are those of the block, its first columns. A mini-batch without
    vertices is not run: it has payloads without rows, loss zero and no gradients.

    Args:
        layers, receives, sends, seed, keeps: as for `Stage`.
        ahead: aggregations from the first of this stage to the end of the model.
        node_ids: `[N]` original vertex ids, which key the dropout.
        features: `[N, F]`, on a stage that reads them (else None).
        targets: labels `[N]` or `[N, T]`, on the last stage (else None).
        variates: one for every aggregation, or none.
        recompute: keep only payloads between forward and backward, and run the whole stage again in backward.
    """

    def __init__(
        self,
        layers: Sequence[tuple[int, Layer]],
        receives: Mapping[int, Sequence[TensorSpec]],
        sends: Mapping[int, Sequence[TensorSpec]],
        *,
        ahead: int,
        node_ids: Tensor,
        seed: int,
        features: Tensor | SparseRows | None = None,
        targets: Tensor | None = None,
        recompute: bool = False,
        keeps: Mapping[int, str] | None = None,
        variates: Sequence[ControlVariates] = (),
    ) -> None:
        self.layers = tuple(layers)
        self.segments = cut_segments(layers, keeps)
        # In the order of the stages, as in `Stage`.
        self.receives = {number: tuple(receives[number]) for number in sorted(receives)}
        self.sends = {number: tuple(sends[number]) for number in sorted(sends)}
        self.ahead = ahead
        self.node_ids = node_ids
        self.seed = seed
        self.features = features
        self.targets = targets
        self.recompute = recompute
        self.head: LocalHead | None = None
        self.halo: Halo | None = None
        self.variates = tuple(variates)
        self._flights: dict[MiniBatch, _Flight] = {}
        self._pending: dict[MiniBatch, list[WeightGradient]] = {}

    def parameters(self) -> list[Parameter]:
        """Of all layers, in order, each once."""
        return list({id(p): p for _, layer in self.layers for p in layer.parameters()}.values())

    def batch_norms(self) -> list[BatchNorm]:
        """Those of all layers, in order: they collect statistics over a step."""
        return [one for _, layer in self.layers for one in layer.modules() if isinstance(one, BatchNorm)]

    def num_rows_in(self, mini: MiniBatch, step: SampledStep) -> int:
        """Rows of the payloads that it receives."""
        return step.minis[mini].batch.num_rows(self.ahead)

    def num_rows_out(self, mini: MiniBatch, step: SampledStep) -> int:
        """Rows of the payloads that it sends."""
        return step.minis[mini].batch.num_rows(self.ahead - len(self.segments) + 1)

    def forward(
        self,
        slot: Sequence[MiniBatch],
        payloads: _Payloads,
        reads: SampledStep,
        step: int,
        split: bool = False,
    ) -> _Payloads:
        """As `Stage.forward`."""
        out: _Payloads = {target: {} for target in self.sends}
        for mini in slot:
            if not _runs(reads, mini):
                for target, specs in self.sends.items():
                    out[target][mini] = [self._no_rows(spec) for spec in specs]
                continue
            pending = self._pending.setdefault(mini, []) if split else None
            flight = _Flight(self._enter(mini, payloads, reads), None, None, pending)
            with torch.set_grad_enabled(not self.recompute):
                left, loss = self._run(mini, flight, reads, step)
            flight.loss = loss
            if not self.recompute:
                flight.left = left
            self._flights[mini] = flight
            for target, specs in self.sends.items():
                out[target][mini] = [tensor.detach() for tensor in pack(left, specs)]
        return out

    def refresh(
        self, slot: Sequence[MiniBatch], payloads: _Payloads, reads: SampledStep, step: int
    ) -> _Payloads:
        """Mini-batches read nothing that would have to be refreshed."""
        raise RunError("mini-batches have no histories to refresh")

    def loss(self, slot: Sequence[MiniBatch]) -> Tensor:
        """The slot's share of the loss, after its forward pass on the last stage."""
        losses = [self._flights[mini].loss for mini in slot if mini in self._flights]
        found = [loss.detach() for loss in losses if loss is not None]
        return torch.stack(found).sum() if found else torch.zeros((), device=self.node_ids.device)

    def backward(
        self, slot: Sequence[MiniBatch], gradients: _Payloads, reads: SampledStep, step: int
    ) -> _Payloads:
        """As `Stage.backward`."""
        out: _Payloads = {source: {} for source in self.receives}
        for mini in slot:
            flight = self._flights.pop(mini, None)
            if flight is not None:
                self._differentiate(mini, flight, gradients, reads, step)
            for source, specs in self.receives.items():
                out[source][mini] = (
                    [self._no_rows(spec) for spec in specs if spec.needs_grad]
                    if flight is None
                    else leaf_gradients(flight.entered, specs)
                )
        return out

    def release(self) -> None:
        """Nothing outlives a step."""

    def weight_gradients(self, minis: Iterable[MiniBatch]) -> None:
        """Do what `backward` left undone for these mini-batches, one product a weight."""
        add_weight_gradients([one for mini in minis for one in self._pending.pop(mini, [])])

    def _differentiate(
        self, mini: MiniBatch, flight: _Flight, gradients: _Payloads, reads: SampledStep, step: int
    ) -> None:
        left, loss = flight.left, flight.loss
        if left is None:
            left, loss = self._run(mini, flight, reads, step, again=True)
        if loss is not None:
            differentiate([loss], [torch.ones_like(loss)])
            return
        sums: dict[int, tuple[Tensor, Tensor]] = {}
        for target, specs in self.sends.items():
            for tensor, gradient in zip(leaves_of(left, specs), gradients[target][mini], strict=True):
                known = sums.get(id(tensor))
                sums[id(tensor)] = tensor, gradient if known is None else known[1] + gradient
        differentiate([tensor for tensor, _ in sums.values()], [total for _, total in sums.values()])

    def _enter(self, mini: MiniBatch, payloads: _Payloads, reads: SampledStep) -> State:
        tensors = {}
        for source, specs in self.receives.items():
            for spec, tensor in zip(specs, payloads[source][mini], strict=True):
                tensors[spec.name] = tensor.requires_grad_(spec.needs_grad)
        if self.features is not None:
            batch = reads.minis[mini].batch
            rows = batch.vertices[: batch.num_rows(self.ahead)]
            x = self.features
            # Layers declare Tensor; those that can start a model take SparseRows, too.
            found = cast(Tensor, x.select(rows) if isinstance(x, SparseRows) else x.index_select(0, rows))
            if self.layers[0][0] == 0:
                tensors["h"] = found
            if any(FEATURES in layer.reads for _, layer in self.layers):
                tensors[FEATURES] = found
        return State(tensors.pop("h", None), tensors)

    def _run(
        self, mini: MiniBatch, flight: _Flight, reads: SampledStep, step: int, again: bool = False
    ) -> tuple[State, Tensor | None]:
        with nullcontext() if flight.pending is None else DeferredWeights(flight.pending):
            one = reads.minis[mini]
            left, loss = self._layers(mini, one.batch, flight.entered, step, again)
            return left, None if loss is None else loss * one.share

    def _layers(
        self, mini: MiniBatch, batch: Batch, entered: State, step: int, again: bool
    ) -> tuple[State, Tensor | None]:
        """All layers of the stage, and the summed loss where they end the model."""
        ids = self.node_ids[batch.vertices]
        state, z, targets = entered, None, self.targets
        for number, segment in enumerate(self.segments):
            ahead = self.ahead - number
            here = ids[: batch.num_rows(ahead)]
            ends = targets is not None and segment.ahead is None
            selects = ends and segment.ends_row_by_row

            def rows_of(index: int, ids: Tensor = here) -> Rows:
                return Rows(ids, self.seed, step, index, True, again)

            cut, state = segment.run(z, state, rows_of, batch.targets if selects else None)
            if segment.ahead is not None:
                assert cut is not None
                index, layer = segment.ahead
                block = batch.block(-ahead)
                z = aggregate(layer, cut, block, rows_of(index, here[: block.num_rows]))
                if self.variates:
                    z = z + self.variates[number].correct(z, cut, batch, block, step)
                    if not again:
                        self.variates[number].write(mini, cut, batch, block)
                state = _narrowed(state, block.num_rows)
        if targets is None:
            return state, None
        assert state.h is not None
        logits = state.h if selects else state.h[batch.targets]
        return state, summed_loss(logits, targets[batch.target_vertices], batch.loss_weight)

    def _no_rows(self, spec: TensorSpec) -> Tensor:
        return torch.empty(0, *spec.tail, dtype=spec.dtype, device=self.node_ids.device)


def _runs(reads: SampledStep, mini: MiniBatch) -> bool:
    return reads.minis[mini].batch.vertices.numel() > 0


def _narrowed(state: State, count: int) -> State:
    """The first rows of everything: those of a block are its first columns."""

    def first(rows: Any) -> Any:
        if rows.shape[0] == count:
            return rows  # itself: a leaf that passes through stays a leaf
        return rows.rows(0, count) if isinstance(rows, SparseRows) else rows[:count]

    carries = {name: first(tensor) for name, tensor in state.carries.items()}
    return State(None if state.h is None else first(state.h), carries)
