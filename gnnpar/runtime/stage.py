"""`Stage`: a run of consecutive layers on one rank, forward and backward, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from gnnpar.batch import Chunk
from gnnpar.graph.features import SparseRows
from gnnpar.history import Reads
from gnnpar.model.layer import Layer
from gnnpar.model.rows import Rows
from gnnpar.model.trace import TensorSpec
from gnnpar.runtime.aggregation import Aggregation
from gnnpar.runtime.segment import RowsOf, Segment, State, cut_segments
from gnnpar.runtime.targets import Targets

__all__ = ["Payload", "Slot", "Stage"]

Payload = list[Tensor]
"""What one stage hands the next for one chunk: `h` and the carries that later layers read."""

Slot = tuple[Chunk, ...]
"""The chunks that run together and read each other's current rows."""


@dataclass(slots=True)
class Part:
    """One segment's pass over one chunk: the leaves it entered with, and (unless recomputed) what it made."""

    entered: State
    cut: Tensor | None = None
    left: State | None = None
    loss: Tensor | None = None


@dataclass(slots=True)
class Flight:
    """A chunk between its forward and its backward pass."""

    parts: list[Part] = field(default_factory=list)


class Stage:
    """Some consecutive layers of a model, for all chunks, on one rank.

    Args:
        layers: (global index, layer) of this stage; encoder and decoder count as layers.
        aggregations: one for each of these layers that aggregates.
        receives, sends: the boundary payload before and after; empty on the first and the last stage.
        node_ids: `[N]` original vertex ids, which key the dropout.
        features: of a chunk, on the first stage (else None).
        targets: labels and loss, on the last stage (else None).
        recompute: keep only payloads, X and Z (and `h` where a layer looks at it); run the row-wise parts
            again in the backward pass.
        keeps_h0: the encoder's output travels on as the carry `h0`.
    """

    def __init__(
        self,
        layers: Sequence[tuple[int, Layer]],
        aggregations: Sequence[Aggregation],
        receives: Sequence[TensorSpec],
        sends: Sequence[TensorSpec],
        *,
        node_ids: Tensor,
        seed: int,
        features: Callable[[Chunk], Tensor | SparseRows] | None = None,
        targets: Targets | None = None,
        recompute: bool = False,
        keeps_h0: bool = False,
    ) -> None:
        self.layers = tuple(layers)
        self.segments = cut_segments(layers, keeps_h0)
        self.aggregations = tuple(aggregations)
        self.receives = tuple(receives)
        self.sends = tuple(sends)
        self.node_ids = node_ids
        self.seed = seed
        self.features = features
        self.targets = targets
        self.recompute = recompute
        self._flights: dict[Chunk, Flight] = {}

    def forward(
        self, slot: Slot, payloads: dict[Chunk, Payload], reads: Reads, step: int
    ) -> dict[Chunk, Payload]:
        """Run one slot forward. Returns each chunk's payload for the next stage (empty on the last stage)."""
        states = {chunk: self._enter(chunk, payloads, leaf=True) for chunk in slot}
        self._flights.update((chunk, Flight()) for chunk in slot)
        for number in range(len(self.segments)):
            for chunk in slot:
                part = Part(states[chunk])
                with torch.set_grad_enabled(not self.recompute):
                    self._run(part, number, chunk, reads, step)
                if part.cut is not None:
                    self.aggregations[number].write(chunk, part.cut.detach(), reads)
                assert part.left is not None
                states[chunk] = _next_leaves(part.entered, part.left)
                if self.recompute:
                    part.cut = part.left = None
                self._flights[chunk].parts.append(part)
        if not self.sends:
            return {}
        return {chunk: [t.detach() for t in _pack(states[chunk], self.sends)] for chunk in slot}

    def backward(
        self, slot: Slot, gradients: dict[Chunk, Payload], reads: Reads, step: int
    ) -> dict[Chunk, Payload]:
        """Run one slot backward; parameter gradients add up in `.grad`.

        Args:
            gradients: of the payload that `forward` returned (ignored on the last stage).

        Returns the gradients of the payload that `forward` was given (empty on the first stage).
        """
        flights = {chunk: self._flights.pop(chunk) for chunk in slot}
        cut_gradients: dict[Chunk, Tensor] = {}
        entered: dict[Chunk, State] = {}
        for number in reversed(range(len(self.segments))):
            for chunk in slot:
                part = flights[chunk].parts.pop()
                if self.recompute:
                    self._run(part, number, chunk, reads, step, recomputing=True)
                if number == len(self.segments) - 1:
                    self._start_back(part, gradients.get(chunk))
                else:
                    _back(part, cut_gradients.pop(chunk), entered[chunk])
                entered[chunk] = part.entered
                if number > 0:
                    self.aggregations[number - 1].push_back(chunk, reads)
            if number > 0:
                for chunk in slot:
                    cut_gradients[chunk] = self.aggregations[number - 1].pull_back(chunk, reads)
        return (
            {chunk: _leaf_gradients(entered[chunk], self.receives) for chunk in slot} if self.receives else {}
        )

    def evaluate(
        self, slot: Slot, payloads: dict[Chunk, Payload], reads: Reads, aggregations: Sequence[Aggregation]
    ) -> dict[Chunk, Payload]:
        """Exact forward pass of all chunks without dropout; on the last stage the payload is `[logits]`.

        Args:
            aggregations: like the stage's own, over cuts that may be overwritten.
        """
        with torch.no_grad():
            states = {chunk: self._enter(chunk, payloads, leaf=False) for chunk in slot}
            for number, segment in enumerate(self.segments):
                for chunk in slot:
                    rows_of = self._rows_of(chunk, step=0, training=False)
                    z = (
                        aggregations[number - 1].forward(chunk, rows_of(segment.index_behind), reads)
                        if number
                        else None
                    )
                    cut, states[chunk] = segment.run(z, states[chunk], rows_of)
                    if cut is not None:
                        aggregations[number].write(chunk, cut, reads)
            if self.sends:
                return {chunk: _pack(states[chunk], self.sends) for chunk in slot}
            return {chunk: [_present(states[chunk].h)] for chunk in slot}

    def _run(
        self, part: Part, number: int, chunk: Chunk, reads: Reads, step: int, recomputing: bool = False
    ) -> None:
        """One segment over one chunk, into `part`; on the last stage's last segment also the loss."""
        segment = self.segments[number]
        rows_of = self._rows_of(chunk, step, training=True, recomputing=recomputing)
        z = None
        if number > 0:
            aggregation = self.aggregations[number - 1]
            again = aggregation.replay if recomputing else aggregation.forward
            z = again(chunk, rows_of(segment.index_behind), reads)
        if self.targets is None or segment.ahead is not None:
            part.cut, part.left = segment.run(z, part.entered, rows_of)
            return
        select = self.targets.rows(chunk)
        _, part.left = segment.run(z, part.entered, rows_of, select if _selectable(segment) else None)
        logits = _present(part.left.h)
        part.loss = self.targets.loss(logits if _selectable(segment) else logits[select], chunk)

    def loss(self, slot: Slot) -> Tensor:
        """The slot's share of the loss, after its forward pass on the last stage."""
        losses = [self._flights[chunk].parts[-1].loss for chunk in slot]
        return torch.stack([_present(loss).detach() for loss in losses]).sum()

    def _start_back(self, part: Part, gradient: Payload | None) -> None:
        if part.loss is not None:
            if part.loss.requires_grad:
                torch.autograd.backward([part.loss])
            return
        assert part.left is not None and gradient is not None
        outputs = [
            t for t, spec in zip(_pack(part.left, self.sends), self.sends, strict=True) if spec.needs_grad
        ]
        _run_backward(outputs, gradient)

    def _enter(self, chunk: Chunk, payloads: dict[Chunk, Payload], leaf: bool) -> State:
        if self.features is not None:
            return State(cast(Tensor, self.features(chunk)), {})
        tensors = {}
        for spec, tensor in zip(self.receives, payloads[chunk], strict=True):
            tensors[spec.name] = tensor.requires_grad_(leaf and spec.needs_grad)
        return State(tensors.pop("h", None), tensors)

    def _rows_of(self, chunk: Chunk, step: int, training: bool, recomputing: bool = False) -> RowsOf:
        ids = self.node_ids[chunk.start : chunk.stop]
        return lambda index: Rows(ids, self.seed, step, index, training, recomputing)


def _selectable(segment: Segment) -> bool:
    """True where the last layer looks at rows one by one, so that rows without a label may be left out."""
    return bool(segment.inner) and not getattr(segment.inner[-1][1], "chunk_dependent", False)


def _next_leaves(entered: State, left: State) -> State:
    """Cut the autograd graph: what a segment made becomes leaves of the next; carries it left alone stay."""
    carries = {
        name: tensor if tensor is entered.carries.get(name) else _leaf(tensor)
        for name, tensor in left.carries.items()
    }
    return State(None if left.h is None else _leaf(left.h), carries)


def _leaf(tensor: Tensor) -> Tensor:
    # Under recomputation nothing requires a gradient yet; a leaf that gets none costs nothing.
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _back(part: Part, cut_gradient: Tensor, following: State) -> None:
    """Backward through one segment, given ∂X and the gradients that the next segment left in its leaves."""
    assert part.cut is not None and part.left is not None
    outputs, gradients = [part.cut], [cut_gradient]
    if part.left.h is not None and following.h is not None and following.h.grad is not None:
        outputs.append(part.left.h)
        gradients.append(following.h.grad)
    for name, tensor in part.left.carries.items():
        leaf = following.carries[name]
        if tensor is not part.entered.carries.get(name) and leaf.grad is not None:
            outputs.append(tensor)
            gradients.append(leaf.grad)
    _run_backward(outputs, gradients)


def _run_backward(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if pairs:
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])


def _pack(state: State, specs: Sequence[TensorSpec]) -> Payload:
    return [_present(state.h if spec.name == "h" else state.carries[spec.name]) for spec in specs]


def _leaf_gradients(state: State, specs: Sequence[TensorSpec]) -> Payload:
    leaves = [(_present(state.h if s.name == "h" else state.carries[s.name])) for s in specs if s.needs_grad]
    return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
