"""Kernels: aggregation, keyed dropout, sparse encoders. CPU loops compiled by numba; torch everywhere else.

Every function takes `backend`, None being the fastest there is: see `Backend`. Threads: those of torch,
`torch.get_num_threads()`; no result depends on their number.
"""

from gnnpar.graph.kernels.backend import Backend
from gnnpar.graph.kernels.dropout import dropout, relu_dropout
from gnnpar.graph.kernels.keys import DropoutKey, keep_mask
from gnnpar.graph.kernels.passes import (
    drop,
    edge_keep_mask,
    relu_dropout_backward,
    relu_dropout_scaled,
    scale_rows,
    split_rows,
)
from gnnpar.graph.kernels.pull import pull
from gnnpar.graph.kernels.sparse import drop_nonzeros, sparse_linear, sparse_linear_backward
from gnnpar.graph.kernels.warm_up import warm_up

__all__ = [
    "Backend",
    "DropoutKey",
    "drop",
    "drop_nonzeros",
    "dropout",
    "edge_keep_mask",
    "keep_mask",
    "pull",
    "relu_dropout",
    "relu_dropout_backward",
    "relu_dropout_scaled",
    "scale_rows",
    "sparse_linear",
    "sparse_linear_backward",
    "split_rows",
    "warm_up",
]
