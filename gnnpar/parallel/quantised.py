"""`QuantisedHalo`: rows rounded to a few bits on their way (AdaQP, without its choice of bits)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnpar.batch import Chunk, ChunkedGraph
from gnnpar.dist import Mesh, Transport
from gnnpar.graph.kernels.keys import DropoutKey, entry_hash, row_words
from gnnpar.history import Reads
from gnnpar.parallel.halo import Halo, Route, What

__all__ = ["QuantisedHalo", "dequantise", "quantise"]

_SITE = 1 << 17
"""Apart from the sites of dropout and of samples."""


class QuantisedHalo(Halo):
    """Sends every row of K numbers as K codes of a few bits, with the row's least number and the step between
    codes (AdaQP, Wan et al. 2023: stochastic integer quantisation of messages, forward and backward). What
    arrives is right in expectation. AdaQP also chooses the bits of each message by a solver; here they are
    given, the same for all.

    Rounding follows from (seed, step, layer, direction, way that sends, original vertex id, column). In the
    backward pass of fixed linear operators rows of D are rounded, of all others the sums by column.

    Bytes: ⌈K · bits / 8⌉ + 2 numbers for each row that `Halo` sends.

    Args:
        bits: 8, 4 or 2. seed: of the run.
    """

    def __init__(
        self,
        chunked: ChunkedGraph,
        mesh: Mesh,
        column: int,
        way: int,
        transport: Transport,
        bits: int,
        seed: int,
    ) -> None:
        super().__init__(chunked, mesh, column, way, transport)
        self.bits = bits
        self.seed = seed

    def _exchange(
        self,
        routes: Sequence[Route],
        outgoing: Sequence[Tensor],
        incoming: Sequence[Tensor],
        slot: Sequence[Chunk],
        reads: Reads,
        layer: int,
        what: What,
    ) -> Iterable[Tensor]:
        ids = self.chunked.graph.node_ids
        key = DropoutKey(self.seed, reads.step, layer, _SITE + 2 * self.way + (what != "cut"))
        sent = [route.theirs if what == "cut gradient" else route.mine for route in routes]
        codes = [
            quantise(rows, ids[index], key, self.bits) for rows, index in zip(outgoing, sent, strict=True)
        ]
        arrived = super()._exchange(routes, codes, incoming, slot, reads, layer, what)
        return (
            dequantise(part, rows.shape[1], rows.dtype, self.bits)
            for part, rows in zip(arrived, outgoing, strict=True)
        )


def quantise(rows: Tensor, ids: Tensor, key: DropoutKey, bits: int) -> Tensor:
    """`[n, B]` uint8: rows `[n, K]` as codes, several to a byte (the first lowest), then the least number and
    the step of each row.

    A number x becomes one of the two codes around it, so that it is x in expectation.

    Args:
        ids: `[n]` original vertex ids, which key the rounding together with `key` and the column.

    Cost: about twenty passes over n · K numbers.
    """
    count, width = rows.shape
    top = 2**bits - 1
    least, most = rows.aminmax(dim=1, keepdim=True)
    step = (most - least) / top
    # Of the hash 23 bits, and half a unit: float32 holds that, and it lies strictly between 0 and 1.
    columns = torch.arange(width, device=rows.device)
    low, high = row_words(ids, *key.words())
    hashed = entry_hash(low[:, None], high[:, None], columns)
    chance = ((hashed >> 9).to(rows.dtype) + 0.5) * 2.0**-23
    places = (rows - least) / torch.where(step > 0, step, 1.0)
    codes = (places + chance).floor().clamp(0, top).to(torch.uint8)
    per_byte = 8 // bits
    codes = F.pad(codes, (0, -width % per_byte)).view(count, -(-width // per_byte), per_byte)
    shifts = torch.arange(0, 8, bits, device=rows.device, dtype=torch.uint8)
    packed = (codes << shifts).sum(2, dtype=torch.uint8)
    return torch.cat([packed, torch.cat([least, step], 1).view(torch.uint8)], 1)


def dequantise(message: Tensor, width: int, dtype: torch.dtype, bits: int) -> Tensor:
    """`[n, width]`: the rows that `quantise` made a message of."""
    per_byte = 8 // bits
    num_bytes = -(-width // per_byte)
    shifts = torch.arange(0, 8, bits, device=message.device, dtype=torch.uint8)
    codes = (message[:, :num_bytes, None] >> shifts) & (2**bits - 1)
    least, step = message[:, num_bytes:].clone(memory_format=torch.contiguous_format).view(dtype).unbind(1)
    rows: Tensor = codes.flatten(1)[:, :width].to(dtype) * step[:, None] + least[:, None]
    return rows
