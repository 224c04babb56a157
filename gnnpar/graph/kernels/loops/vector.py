"""One tile of a row in LLVM vector instructions: the inner loops of aggregation and of its transpose.

A plain loop keeps a row's sums in memory and adds one edge after the other to them. Here the sums of a tile of
columns stay in registers for all edges of the row. A tile is some vectors of 64 bytes; the columns that are left
over take one vector under a mask. (Prefetching the rows of edges ahead gained nothing on the machines measured.)

All addresses, positions and strides are int64, strides in numbers; the type of `factor` is that of the numbers,
the type of `index` that of the indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANE_BYTES", "gather_tile", "scatter_tile"]

LANE_BYTES = 64

_INT = ir.IntType(64)
_WORD = ir.IntType(32)


def gather_tile(num_vectors: int, masked: bool = False) -> Any:
    """Write `out = factor · (Σ_e weight[e] · x[indices[e]] + x[self_row]) + b · residual` for one tile of a row.

    `weight` None: no weights. `self_row` negative: none. `residual` 0: none. `lanes`: columns left, where masked.
    """

    @intrinsic
    def gather(
        typing_context, lanes, out, x, x_stride, indices, index, first, last, weight, self_row, factor, residual, b
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        kinds = (lanes, out, x, x_stride, indices, index, first, last, weight, self_row, factor, residual, b)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            lanes, out, x, x_stride, indices, _, first, last, weight_at, self_row, factor, residual, b = (
                values
            )
            tile = _Tile(context, builder, factor.type, num_vectors, lanes if masked else None)
            x, indices = tile.pointer(x), tile.pointer(indices, context.get_value_type(index))
            weighted = weight != types.none
            weights = tile.pointer(weight_at) if weighted else None
            sums = tile.variables()
            with builder.if_then(builder.icmp_signed(">=", self_row, _INT(0))):
                tile.assign(sums, tile.load(builder.gep(x, [builder.mul(self_row, x_stride)])))
            with cgutils.for_range_slice(builder, first, last, _INT(1), _INT) as (edge, _):
                source = tile.load(builder.gep(x, [builder.mul(tile.index(indices, edge), x_stride)]))
                if weighted:
                    by = tile.splat(builder.load(builder.gep(weights, [edge])))
                    tile.assign(
                        sums, [tile.fma(by, v, builder.load(s)) for v, s in zip(source, sums, strict=True)]
                    )
                else:
                    tile.assign(
                        sums, [builder.fadd(builder.load(s), v) for v, s in zip(source, sums, strict=True)]
                    )
            by = tile.splat(factor)
            tile.assign(sums, [builder.fmul(by, builder.load(s)) for s in sums])
            with builder.if_then(builder.icmp_signed("!=", residual, _INT(0))):
                by, extra = tile.splat(b), tile.load(tile.pointer(residual))
                tile.assign(
                    sums, [tile.fma(by, v, builder.load(s)) for v, s in zip(extra, sums, strict=True)]
                )
            tile.store([builder.load(s) for s in sums], tile.pointer(out))
            return context.get_dummy_value()

        return types.void(*kinds), generate

    return gather


def scatter_tile(num_vectors: int, masked: bool = False) -> Any:
    """Add `weight[e] · x` to `out[indices[e]]` for one tile of columns and the edges of one row, in their order."""

    @intrinsic
    def scatter(typing_context, lanes, out, out_stride, x, indices, index, first, last, weight, like):  # type: ignore[no-untyped-def]
        kinds = (lanes, out, out_stride, x, indices, index, first, last, weight, like)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            lanes, out, out_stride, x, indices, _, first, last, weight, like = values
            tile = _Tile(context, builder, like.type, num_vectors, lanes if masked else None)
            out, weight = tile.pointer(out), tile.pointer(weight)
            indices = tile.pointer(indices, context.get_value_type(index))
            source = tile.load(tile.pointer(x))
            with cgutils.for_range_slice(builder, first, last, _INT(1), _INT) as (edge, _):
                target = builder.gep(out, [builder.mul(tile.index(indices, edge), out_stride)])
                by = tile.splat(builder.load(builder.gep(weight, [edge])))
                tile.store(
                    [tile.fma(by, v, t) for v, t in zip(source, tile.load(target), strict=True)], target
                )
            return context.get_dummy_value()

        return types.void(*kinds), generate

    return scatter


class _Tile:
    """Instructions on `num_vectors` consecutive vectors of numbers; on the first `left` lanes of one where given."""

    def __init__(self, context: Any, builder: Any, number: Any, num_vectors: int, left: Any) -> None:
        self.builder, self.number, self.num_vectors = builder, number, num_vectors
        self.align = context.get_abi_sizeof(number)
        self.lanes = LANE_BYTES // self.align
        self.vector = ir.VectorType(number, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.align}"
        self.mask = None
        if left is not None:
            kind = ir.VectorType(_INT, self.lanes)
            counts = ir.Constant(kind, list(range(self.lanes)))
            self.mask = builder.icmp_signed("<", counts, self._spread(left, kind))

    def pointer(self, address: Any, kind: Any = None) -> Any:
        return self.builder.inttoptr(address, (kind or self.number).as_pointer())

    def index(self, indices: Any, edge: Any) -> Any:
        value = self.builder.load(self.builder.gep(indices, [edge]))
        return value if value.type == _INT else self.builder.sext(value, _INT)

    def splat(self, value: Any) -> Any:
        return self._spread(value, self.vector)

    def variables(self) -> list[Any]:
        """Zeroed; LLVM keeps them in registers."""
        zero = ir.Constant(self.vector, None)
        return [cgutils.alloca_once_value(self.builder, zero) for _ in range(self.num_vectors)]

    def assign(self, variables: list[Any], values: list[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            self.builder.store(value, variable)

    def load(self, start: Any) -> list[Any]:
        zero = ir.Constant(self.vector, None)
        if self.mask is None:
            return [self.builder.load(pointer, align=self.align) for pointer in self._pointers(start)]
        kinds = [self.vector.as_pointer(), _WORD, self.mask.type, self.vector]
        load = self._function(f"llvm.masked.load.{self.suffix}.p0", self.vector, kinds)
        return [
            self.builder.call(load, [p, _WORD(self.align), self.mask, zero]) for p in self._pointers(start)
        ]

    def store(self, values: list[Any], start: Any) -> None:
        kinds = [self.vector, self.vector.as_pointer(), _WORD]
        for value, pointer in zip(values, self._pointers(start), strict=True):
            if self.mask is None:
                self.builder.store(value, pointer, align=self.align)
            else:
                kind = [*kinds, self.mask.type]
                store = self._function(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), kind)
                self.builder.call(store, [value, pointer, _WORD(self.align), self.mask])

    def fma(self, u: Any, v: Any, w: Any) -> Any:
        return self.builder.call(
            self._function(f"llvm.fma.{self.suffix}", self.vector, [self.vector] * 3), [u, v, w]
        )

    def _pointers(self, start: Any) -> list[Any]:
        offsets = (self.builder.gep(start, [_INT(part * self.lanes)]) for part in range(self.num_vectors))
        return [self.builder.bitcast(offset, self.vector.as_pointer()) for offset in offsets]

    def _spread(self, value: Any, kind: Any) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, value, _WORD(0))
        return self.builder.shuffle_vector(
            one, undefined, ir.Constant(ir.VectorType(_WORD, kind.count), None)
        )

    def _function(self, name: str, result: Any, arguments: list[Any]) -> Callable[..., Any]:
        kind = ir.FunctionType(result, arguments)
        function: Callable[..., Any] = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return function
