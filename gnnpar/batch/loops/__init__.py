"""Loops of the samplers over NumPy arrays: compiled and without the interpreter lock, or plain Python.

Names: `indptr`, `indices`: the graph's CSR of in-edges. `edges`: positions in `indices`. `mark`: `[N]` int32
scratch, -1 wherever no loop is at work; who sets a mark clears it, so that no batch pays for all N vertices.
`k0, k1`: the words of a key; every draw is a hash of them, a vertex and a counter
(`gnnpar.graph.kernels.keys`). Import from here only inside functions: it imports numba.
"""
