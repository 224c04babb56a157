"""One tile of a row in LLVM vector instructions: the inner loops of aggregation and of its transpose.

A plain loop keeps a row's sums in memory and adds one edge after another to them. Here the sums of a tile
of columns stay in registers for all edges of the row. A tile is some vectors of 64 bytes; the columns that
are left over take one vector under a mask. Rows of edges ahead are prefetched: memory is what it waits for.

Addresses, positions and strides are int64, strides count numbers.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

__all__ = ["LANE_BYTES", "gather_tile", "scatter_tile"]

LANE_BYTES = 64

_AHEAD = 16  # edges; 12 to 20 are alike, and save a tenth to a fifth of the time

# numba is typed in part only, and its types do not follow its decorators.
types: Any = numba.types
cgutils: Any = numba_cgutils
intrinsic: Any = numba_intrinsic

_INT = ir.IntType(64)
_WORD = ir.IntType(32)


def gather_tile(num_vectors: int, masked: bool = False) -> Any:
    """One tile of a row of `pull`: its arguments are two tuples.

        out = [gate > 0] · factor · (Σ_e weight[e] · x[indices[e]] + x[self_row]) + b · residual

    Args:
        place: (columns left, for `masked`; addresses of the tile in out, in row 0 of x, in gate or 0,
            in residual or 0)
        edges: (row stride of x, indices, a number of their type, last edge of all, first edge, last edge,
            weights or None, self_row or a negative number, factor, b); numbers are of the type of `factor`.
    """

    @intrinsic
    def gather(typing_context: Any, place: Any, edges: Any) -> Any:
        index, weighted = edges.types[2], edges.types[6] != types.none

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            left, out, x, gate, residual = cgutils.unpack_tuple(builder, values[0])
            stride, indices, _, end, first, last, weights, self_row, factor, b = cgutils.unpack_tuple(
                builder, values[1]
            )
            tile = _Tile(context, builder, factor.type, num_vectors, left if masked else None)
            x, indices = tile.pointer(x), tile.pointer(indices, context.get_value_type(index))
            weights = tile.pointer(weights) if weighted else None
            sums = tile.variables()
            with builder.if_then(builder.icmp_signed(">=", self_row, _INT(0))):
                tile.assign(sums, tile.load(builder.gep(x, [builder.mul(self_row, stride)])))
            with cgutils.for_range_slice(builder, first, last, _INT(1), _INT) as (edge, _):
                ahead = builder.add(edge, _INT(_AHEAD))
                ahead = builder.select(builder.icmp_signed("<", ahead, end), ahead, edge)
                tile.prefetch(builder.gep(x, [builder.mul(tile.index(indices, ahead), stride)]))
                source = tile.load(builder.gep(x, [builder.mul(tile.index(indices, edge), stride)]))
                if weighted:
                    tile.assign(
                        sums, tile.fma(builder.load(builder.gep(weights, [edge])), source, tile.values(sums))
                    )
                else:
                    tile.assign(sums, tile.add(source, tile.values(sums)))
            tile.assign(sums, tile.scale(factor, tile.values(sums)))
            with builder.if_then(builder.icmp_signed("!=", gate, _INT(0))):
                tile.assign(sums, tile.where_positive(tile.load(tile.pointer(gate)), tile.values(sums)))
            with builder.if_then(builder.icmp_signed("!=", residual, _INT(0))):
                tile.assign(sums, tile.fma(b, tile.load(tile.pointer(residual)), tile.values(sums)))
            tile.store(tile.values(sums), tile.pointer(out))
            return context.get_dummy_value()

        return types.void(place, edges), generate

    return gather


def scatter_tile(num_vectors: int, masked: bool = False) -> Any:
    """`out[indices[e]] += weight[e] · x` for one tile of columns and the edges of one row, in order.

    Args:
        place: (columns left, for `masked`; addresses of the tile in row 0 of out, and in x)
        edges: (row stride of out, indices, a number of their type, first edge, last edge, weights, a number).
    """

    @intrinsic
    def scatter(typing_context: Any, place: Any, edges: Any) -> Any:
        index = edges.types[2]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            left, out, x = cgutils.unpack_tuple(builder, values[0])
            stride, indices, _, first, last, weights, like = cgutils.unpack_tuple(builder, values[1])
            tile = _Tile(context, builder, like.type, num_vectors, left if masked else None)
            out, weights = tile.pointer(out), tile.pointer(weights)
            indices = tile.pointer(indices, context.get_value_type(index))
            source = tile.load(tile.pointer(x))
            with cgutils.for_range_slice(builder, first, last, _INT(1), _INT) as (edge, _):
                target = builder.gep(out, [builder.mul(tile.index(indices, edge), stride)])
                tile.store(
                    tile.fma(builder.load(builder.gep(weights, [edge])), source, tile.load(target)), target
                )
            return context.get_dummy_value()

        return types.void(place, edges), generate

    return scatter


class _Tile:
    """Instructions on `num_vectors` vectors in a row; on the first `left` lanes of one where given."""

    def __init__(self, context: Any, builder: Any, number: Any, num_vectors: int, left: Any) -> None:
        self.builder, self.number, self.num_vectors = builder, number, num_vectors
        self.align = context.get_abi_sizeof(number)
        self.lanes = LANE_BYTES // self.align
        self.vector = ir.VectorType(number, self.lanes)
        self.zero = ir.Constant(self.vector, None)
        self.suffix = f"v{self.lanes}f{8 * self.align}"
        self.mask = None
        if left is not None:
            kind = ir.VectorType(_INT, self.lanes)
            lane = ir.Constant(kind, list(range(self.lanes)))
            self.mask = builder.icmp_signed("<", lane, self._splat(left, kind))

    def pointer(self, address: Any, kind: Any = None) -> Any:
        return self.builder.inttoptr(address, (kind or self.number).as_pointer())

    def index(self, indices: Any, edge: Any) -> Any:
        value = self.builder.load(self.builder.gep(indices, [edge]))
        return value if value.type == _INT else self.builder.sext(value, _INT)

    def variables(self) -> list[Any]:
        """Zeroed; LLVM keeps them in registers."""
        return [cgutils.alloca_once_value(self.builder, self.zero) for _ in range(self.num_vectors)]

    def values(self, variables: list[Any]) -> list[Any]:
        return [self.builder.load(variable) for variable in variables]

    def assign(self, variables: list[Any], values: list[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            self.builder.store(value, variable)

    def add(self, u: list[Any], v: list[Any]) -> list[Any]:
        return [self.builder.fadd(*pair) for pair in zip(u, v, strict=True)]

    def scale(self, number: Any, values: list[Any]) -> list[Any]:
        by = self._splat(number, self.vector)
        return [self.builder.fmul(by, value) for value in values]

    def where_positive(self, gate: list[Any], values: list[Any]) -> list[Any]:
        is_open = [self.builder.fcmp_ordered(">", part, self.zero) for part in gate]
        return [self.builder.select(*pair, self.zero) for pair in zip(is_open, values, strict=True)]

    def fma(self, number: Any, u: list[Any], v: list[Any]) -> list[Any]:
        """number · u + v, rounded once."""
        by = self._splat(number, self.vector)
        fma = self._function(f"llvm.fma.{self.suffix}", self.vector, [self.vector] * 3)
        return [self.builder.call(fma, [by, *pair]) for pair in zip(u, v, strict=True)]

    def load(self, start: Any) -> list[Any]:
        pointers = self._pointers(start)
        if self.mask is None:
            return [self.builder.load(pointer, align=self.align) for pointer in pointers]
        kinds = [self.vector.as_pointer(), _WORD, self.mask.type, self.vector]
        load = self._function(f"llvm.masked.load.{self.suffix}.p0", self.vector, kinds)
        return [self.builder.call(load, [p, _WORD(self.align), self.mask, self.zero]) for p in pointers]

    def prefetch(self, start: Any) -> None:
        byte = ir.IntType(8).as_pointer()
        prefetch = self._function("llvm.prefetch.p0", ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        for pointer in self._pointers(start):  # to be read (0), into all caches (3), as data (1)
            self.builder.call(prefetch, [self.builder.bitcast(pointer, byte), _WORD(0), _WORD(3), _WORD(1)])

    def store(self, values: list[Any], start: Any) -> None:
        for value, pointer in zip(values, self._pointers(start), strict=True):
            if self.mask is None:
                self.builder.store(value, pointer, align=self.align)
            else:
                kinds = [self.vector, self.vector.as_pointer(), _WORD, self.mask.type]
                store = self._function(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), kinds)
                self.builder.call(store, [value, pointer, _WORD(self.align), self.mask])

    def _pointers(self, start: Any) -> list[Any]:
        offsets = (self.builder.gep(start, [_INT(part * self.lanes)]) for part in range(self.num_vectors))
        return [self.builder.bitcast(offset, self.vector.as_pointer()) for offset in offsets]

    def _splat(self, value: Any, kind: Any) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, value, _WORD(0))
        return self.builder.shuffle_vector(
            one, undefined, ir.Constant(ir.VectorType(_WORD, kind.count), None)
        )

    def _function(self, name: str, result: Any, arguments: list[Any]) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)
