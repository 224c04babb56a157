"""Memory of tensors as seen from the loops: addresses, so that a call builds no array object.

Handing a tensor over as NumPy array costs microseconds, many times the loop itself on a small chunk. Whoever
calls a loop keeps the tensors alive and has checked their types and sizes (`gnnpar.graph.kernels.backend`).
"""

from __future__ import annotations

from typing import Any

import numba

from gnnpar.graph.kernels.compile import jit
from gnnpar.graph.kernels.loops.vector import intrinsic, types

__all__ = ["size_of", "span"]

carray: Any = numba.carray  # type: ignore[attr-defined]


@intrinsic
def _pointer(typing_context: Any, address: Any, like: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


@intrinsic
def size_of(typing_context: Any, like: Any) -> Any:
    """Bytes of a number."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.get_constant(types.int64, context.get_abi_sizeof(context.get_data_type(like)))

    return types.int64(like), generate


@jit
def span(address: Any, size: Any, like: Any) -> Any:
    """The `size` numbers from an address on, of the type of `like`, as array."""
    return carray(_pointer(address, like), (size,))
