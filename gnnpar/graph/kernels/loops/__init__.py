"""Loops over NumPy arrays, compiled by numba. Only imported where numba is; nothing here knows of tensors."""
