"""`Stage`: a run of consecutive layers on one rank, forward and backward, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.nn import Parameter

from gnnpar.batch import Chunk
from gnnpar.graph.features import SparseRows
from gnnpar.history import Reads
from gnnpar.model.fused import WeightGradient
from gnnpar.model.layer import FEATURES, Layer
from gnnpar.model.norm import BatchNorm
from gnnpar.model.rows import Rows
from gnnpar.model.trace import TensorSpec
from gnnpar.parallel import Halo
from gnnpar.runtime.aggregation import Aggregation, PullAggregation
from gnnpar.runtime.deferred import add_weight_gradients
from gnnpar.runtime.local import LocalHead
from gnnpar.runtime.passage import AutogradPassage, FusedPassage, Part, Passage
from gnnpar.runtime.segment import RowsOf, Segment, State, cut_segments
from gnnpar.runtime.targets import Targets

__all__ = ["OUT", "Payload", "Payloads", "Slot", "Stage", "leaf_gradients", "leaves_of", "pack"]

Payload = list[Tensor]
"""What one stage hands another for one chunk: `h` and the carries that it, or stages after it, read."""

Payloads = dict[int, dict[Chunk, Payload]]
"""Of every neighbouring stage, by its number: each chunk's payload."""

OUT = -1
"""In place of the number of a stage: what the last one makes."""

Slot = tuple[Chunk, ...]
"""The chunks that run together and read each other's current rows."""


@dataclass(slots=True)
class Flight:
    """A chunk between its forward and its backward pass, with the leaves that its payload was cut from."""

    parts: list[Part] = field(default_factory=list)
    last: State | None = None


class Stage:
    """Some consecutive layers of a model, for all chunks, on one rank.

    Args:
        layers: (global index, layer) of this stage; encoder and decoder count as layers.
        aggregations: one for each of these layers that aggregates.
        receives, sends: what comes from every stage before and goes to every stage after, by its number;
            empty on a first and on a last stage.
        node_ids: `[N]` original vertex ids, which key the dropout.
        features: of a chunk, on a stage that reads them (else None).
        targets: labels and loss, on the last stage (else None).
        recompute: keep only payloads, X and Z (and `h` where a layer looks at it); run the row-wise parts
            again in the backward pass.
        keeps: global index of a layer → name of the carry that its output becomes.
        halo: where other ways run chunks of the same slots, which read each other (else None).
        head: a loss of its own, instead of gradients from the stages after (local learning; else None).
    """

    def __init__(
        self,
        layers: Sequence[tuple[int, Layer]],
        aggregations: Sequence[Aggregation],
        receives: Mapping[int, Sequence[TensorSpec]],
        sends: Mapping[int, Sequence[TensorSpec]],
        *,
        node_ids: Tensor,
        seed: int,
        features: Callable[[Chunk], Tensor | SparseRows] | None = None,
        targets: Targets | None = None,
        recompute: bool = False,
        keeps: Mapping[int, str] | None = None,
        halo: Halo | None = None,
        head: LocalHead | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.segments = cut_segments(layers, keeps)
        self.aggregations = tuple(aggregations)
        # In the order of the stages: so gradients add up alike wherever the stages are.
        self.receives = {number: tuple(receives[number]) for number in sorted(receives)}
        self.sends = {number: tuple(sends[number]) for number in sorted(sends)}
        self.node_ids = node_ids
        self.seed = seed
        self.features = features
        self.targets = targets
        self.recompute = recompute
        self.halo = halo
        self.head = head
        self.passages: list[Passage] = [
            _passage(number, self.segments, aggregations, targets) for number in range(len(self.segments))
        ]
        self._flights: dict[Chunk, Flight] = {}
        self._pending: dict[Chunk, list[WeightGradient]] = {}

    def parameters(self) -> list[Parameter]:
        """Of all layers, in order, each once; then those of the head."""
        own = [p for _, layer in self.layers for p in layer.parameters()]
        own += [] if self.head is None else [p for _, p in self.head.named_parameters()]
        return list({id(p): p for p in own}.values())

    def aggregating(self) -> Iterator[tuple[int, Aggregation]]:
        """(global index of the layer, its aggregation)."""
        layers = (index for index, layer in self.layers if layer.operator is not None)
        return zip(layers, self.aggregations, strict=True)

    def batch_norms(self) -> list[BatchNorm]:
        """Those of all layers, in order: they collect statistics over a step."""
        return [one for _, layer in self.layers for one in layer.modules() if isinstance(one, BatchNorm)]

    def num_rows_in(self, chunk: Chunk, reads: Reads) -> int:
        """Rows of the payloads that it receives."""
        return chunk.num_rows

    def num_rows_out(self, chunk: Chunk, reads: Reads) -> int:
        """Rows of the payloads that it sends."""
        return chunk.num_rows

    def forward(
        self, slot: Slot, payloads: Payloads, reads: Reads, step: int, split: bool = False
    ) -> Payloads:
        """Run one slot forward. Returns each chunk's payload for every stage after (none on a last stage).

        Args:
            payloads: from every stage before.
            split: the weight gradients will come with `weight_gradients`, not with `backward`.
        """
        states = {chunk: self._enter(chunk, payloads, leaf=True) for chunk in slot}
        self._flights.update((chunk, Flight()) for chunk in slot)
        for number, passage in enumerate(self.passages):
            for chunk in slot:
                rows_of = self._rows_of(chunk, step)
                part = Part(states[chunk], pending=self._pending.setdefault(chunk, []) if split else None)
                passage.forward(chunk, part, reads, rows_of, keep=not self.recompute)
                assert part.left is not None
                states[chunk] = _leaves(part.entered, part.left)
                if self.recompute:
                    part.left = part.cut = None
                self._flights[chunk].parts.append(part)
            if self.halo is not None and number < len(self.aggregations):
                self.aggregations[number].share(slot, reads, self.halo, self._ahead(number))
        for chunk in slot:
            self._flights[chunk].last = states[chunk]
            if self.head is not None:
                self.head.forward(chunk, _present(states[chunk].h), reads)
        return {
            target: {chunk: [t.detach() for t in pack(states[chunk], specs)] for chunk in slot}
            for target, specs in self.sends.items()
        }

    def loss(self, slot: Slot) -> Tensor:
        """The slot's share of the loss, after its forward pass on the last stage."""
        losses = [_present(self._flights[chunk].parts[-1].loss).detach() for chunk in slot]
        return torch.stack(losses).sum()

    def backward(self, slot: Slot, gradients: Payloads, reads: Reads, step: int) -> Payloads:
        """Run one slot backward; parameter gradients add up in `.grad`.

        Args:
            gradients: of the payloads that `forward` returned, unless the stage has a head. Those of one
                tensor for several stages add up in the order of the stages.

        Returns the gradients of the payloads that `forward` was given (none on a first stage).
        """
        flights = {chunk: self._flights.pop(chunk) for chunk in slot}
        following = {chunk: _present_state(flight.last) for chunk, flight in flights.items()}
        if self.head is not None:
            for chunk in slot:
                self.head.backward(chunk)
        for target, specs in self.sends.items() if self.head is None else ():
            for chunk, payload in gradients[target].items():
                for leaf, gradient in zip(leaves_of(following[chunk], specs), payload, strict=True):
                    leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
        cut_gradients: dict[Chunk, Tensor] = {}
        for number in reversed(range(len(self.passages))):
            for chunk in slot:
                part = flights[chunk].parts.pop()
                rows_of = self._rows_of(chunk, step, recomputing=True)
                cut_gradient = cut_gradients.pop(chunk, None)
                self.passages[number].backward(chunk, part, cut_gradient, following[chunk], reads, rows_of)
                following[chunk] = part.entered
            if number > 0:
                behind = self.aggregations[number - 1]
                if self.halo is not None:
                    behind.share_back(slot, reads, self.halo, self._ahead(number - 1))
                for chunk in slot:
                    cut_gradients[chunk] = self.passages[number].pull_back(chunk, reads)
                behind.carry(slot, reads)
        return {
            source: {chunk: leaf_gradients(following[chunk], specs) for chunk in slot}
            for source, specs in self.receives.items()
        }

    def release(self) -> None:
        """The step is over: histories in files need no memory for now."""
        for one in self.aggregations:
            one.cut.release()

    def weight_gradients(self, chunks: Iterable[Chunk]) -> None:
        """Do what `backward` left undone for these chunks (of any number of slots), one product a weight."""
        add_weight_gradients([one for chunk in chunks for one in self._pending.pop(chunk, [])])

    def evaluate(
        self, slot: Slot, payloads: Payloads, reads: Reads, aggregations: Sequence[Aggregation]
    ) -> Payloads:
        """Exact forward pass of all chunks without dropout; a last stage hands `[logits]` to `OUT`.

        Args:
            aggregations: like the stage's own, over cuts that may be overwritten.
        """
        return self._only_forward(slot, payloads, reads, aggregations)

    def revisit(
        self,
        slot: Slot,
        payloads: Payloads,
        reads: Reads,
        aggregations: Sequence[Aggregation],
        step_of: Callable[[Chunk], int],
        seen: Callable[[int], None],
    ) -> Payloads:
        """As `evaluate`, with the dropout masks that each chunk had in some step.

        Args:
            seen: called with the number of an aggregation when the whole cut of it is there.
        """
        return self._only_forward(slot, payloads, reads, aggregations, step_of, seen=seen)

    def refresh(self, slot: Slot, payloads: Payloads, reads: Reads, step: int) -> Payloads:
        """Forward pass of all chunks that writes the stage's own cuts, with the dropout masks of `step`, and
        keeps nothing else; running statistics pass over it. Returns as `forward`."""
        aggregations = [one.over(one.cut, None) for one in self.aggregations]
        out = self._only_forward(slot, payloads, reads, aggregations, lambda _: step, self.halo)
        return {target: payload for target, payload in out.items() if target != OUT}

    def _only_forward(
        self,
        slot: Slot,
        payloads: Payloads,
        reads: Reads,
        aggregations: Sequence[Aggregation],
        step_of: Callable[[Chunk], int] | None = None,
        halo: Halo | None = None,
        seen: Callable[[int], None] | None = None,
    ) -> Payloads:
        """`step_of`: whose dropout a chunk has; None: none. `halo`: where other ways take part."""
        training = step_of is not None
        with torch.no_grad():
            states = {chunk: self._enter(chunk, payloads, leaf=False) for chunk in slot}
            for number, segment in enumerate(self.segments):
                for chunk in slot:
                    step = step_of(chunk) if step_of is not None else 0
                    rows_of = self._rows_of(chunk, step, training, recomputing=training)
                    z = None
                    if number > 0:
                        z = aggregations[number - 1].forward(chunk, rows_of(segment.index_behind), reads)
                    cut, states[chunk] = segment.run(z, states[chunk], rows_of)
                    if cut is not None:
                        aggregations[number].write(chunk, cut, reads)
                if number < len(aggregations):
                    if halo is not None:
                        aggregations[number].share(slot, reads, halo, self._ahead(number))
                    if seen is not None:
                        seen(number)
                if number > 0:
                    aggregations[number - 1].cut.release()
            if not self.sends:
                return {OUT: {chunk: [_present(states[chunk].h)] for chunk in slot}}
            return {
                target: {chunk: pack(states[chunk], specs) for chunk in slot}
                for target, specs in self.sends.items()
            }

    def _enter(self, chunk: Chunk, payloads: Payloads, leaf: bool) -> State:
        tensors = {}
        for source, specs in self.receives.items():
            for spec, tensor in zip(specs, payloads[source][chunk], strict=True):
                tensors[spec.name] = tensor.requires_grad_(leaf and spec.needs_grad)
        if self.features is not None:
            x = cast(Tensor, self.features(chunk))
            if self.layers[0][0] == 0:
                tensors["h"] = x
            if any(FEATURES in layer.reads for _, layer in self.layers):
                tensors[FEATURES] = x
        return State(tensors.pop("h", None), tensors)

    def _ahead(self, number: int) -> int:
        """Global index of the layer that aggregates after this passage."""
        ahead = self.segments[number].ahead
        assert ahead is not None
        return ahead[0]

    def _rows_of(self, chunk: Chunk, step: int, training: bool = True, recomputing: bool = False) -> RowsOf:
        ids = self.node_ids[chunk.start : chunk.stop]
        return lambda index: Rows(ids, self.seed, step, index, training, recomputing)


def _passage(
    number: int, segments: Sequence[Segment], aggregations: Sequence[Aggregation], targets: Targets | None
) -> Passage:
    segment = segments[number]
    behind = aggregations[number - 1] if number > 0 else None
    ahead = aggregations[number] if number < len(aggregations) else None
    if isinstance(behind, PullAggregation) and isinstance(ahead, PullAggregation) and not segment.inner:
        assert segment.behind is not None and segment.ahead is not None
        fused = segment.behind[1].fused_with(segment.ahead[1])
        if fused is not None and segment.behind[0] not in segment.keeps:
            return FusedPassage(fused, segment.ahead[0], behind, ahead)
    return AutogradPassage(segment, behind, ahead, targets if ahead is None else None)


def _leaves(entered: State, left: State) -> State:
    """What a segment made, as leaves of the next one; carries that it left alone stay as they are."""
    carries = {
        name: tensor if tensor is entered.carries.get(name) else _leaf(tensor)
        for name, tensor in left.carries.items()
    }
    return State(None if left.h is None else _leaf(left.h), carries)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def pack(state: State, specs: Sequence[TensorSpec]) -> Payload:
    """The tensors of a payload, in the order of its specs."""
    return [_present(state.h if spec.name == "h" else state.carries[spec.name]) for spec in specs]


def leaves_of(state: State, specs: Sequence[TensorSpec]) -> list[Tensor]:
    """Those of `pack` that have gradients."""
    return [t for t, spec in zip(pack(state, specs), specs, strict=True) if spec.needs_grad]


def leaf_gradients(state: State, specs: Sequence[TensorSpec]) -> Payload:
    """The gradients of `leaves_of`; zero where none came."""
    leaves = leaves_of(state, specs)
    return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _present_state(state: State | None) -> State:
    assert state is not None
    return state
