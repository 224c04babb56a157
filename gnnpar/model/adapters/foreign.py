"""What PyG and DGL adapters share: how a block is shown to a module that knows nothing of blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from gnnpar.errors import InputError, RunError
from gnnpar.graph.block import Block
from gnnpar.model.layer import Carries, Layer, Push
from gnnpar.model.norm import BatchNorm
from gnnpar.model.rows import Rows
from gnnpar.model.rowwise import deferred_batch_norm

__all__ = ["Foreign", "Strategy", "View"]

Strategy = Literal["bipartite", "square", "padded", "counted"]


@dataclass(frozen=True, eq=False)
class View:
    """A block as a foreign module sees it: V vertices (sources), of which the first R are wanted.

    Attributes:
        num_rows: R. num_vertices: V. bipartite: whether sources and destinations are two sets.
        source, destination: `[E_v]` int64. edge_weight: `[E_v]` or None. edge_attr: `[E_v, K]` or None.
    """

    num_rows: int
    num_vertices: int
    bipartite: bool
    source: Tensor
    destination: Tensor
    edge_weight: Tensor | None
    edge_attr: Tensor | None


class Foreign(Layer):
    """A foreign convolution `foreign`, cut at its input. Subclasses write `call`.

    Attributes:
        strategies: the ways to try, the cheapest first.
        strategy: the one that the probe found to be right; None before. A whole graph needs none.
        initial: the argument through which the module takes the carry `h0`, or None. Its rows are part of the
            cut then, since the module wants them for all vertices that it is shown.
        takes_weight: whether the module takes edge weights.
    """

    operator = Push()
    strategies: tuple[Strategy, ...] = ("bipartite", "square", "padded", "counted")
    strategy: Strategy | None = None
    initial: str | None = None
    takes_weight: bool = False

    def __init__(self, foreign: nn.Module) -> None:
        super().__init__()
        faults = _module_faults(foreign)
        if faults:
            raise InputError(type(foreign).__name__, faults)
        self.foreign = _defer_batch_norms(foreign)

    def call(self, x: Tensor, x_rows: Tensor, initial: Tensor | None, view: View) -> Tensor:
        """The module on a view: `x` `[V, H]`, `x_rows` `[R, H]` its first rows → `[R or V, H']`."""
        raise NotImplementedError

    def before(self, h: Tensor, carries: Carries, rows: Rows) -> Tensor:
        return h if self.initial is None else torch.cat([h, carries["h0"]], dim=1)

    def aggregate(self, x: Tensor, block: Block, rows: Rows) -> Tensor:
        strategy = self.strategy
        if strategy is None:
            if block.num_rows != block.num_columns:
                raise RunError(
                    f"layer {rows.layer}: {type(self.foreign).__name__} has not been probed; "
                    "call LayerStack.check(graph) before cutting the graph"
                )
            strategy = "square"
        view = self._view(block, strategy, x.dtype)
        if view.num_vertices > len(x):
            x = torch.cat([x, x.new_zeros(view.num_vertices - len(x), *x.shape[1:])])
        initial = None
        if self.initial is not None:
            x, initial = x.chunk(2, dim=1)
        self._set_mode(rows)
        with _reseeded(rows, x.device):
            out = self.call(x, x[: block.num_rows], initial, view)
        return out[: block.num_rows]

    def _view(self, block: Block, strategy: Strategy, dtype: torch.dtype) -> View:
        weight = block.edge_weight if self.takes_weight else None
        if weight is not None:
            weight = weight.to(dtype)
        view = View(
            block.num_rows,
            block.num_columns,
            strategy == "bipartite",
            block.columns,
            block.rows,
            weight,
            None if block.edge_attr is None else block.edge_attr.to(dtype),
        )
        if strategy in ("padded", "counted"):
            return self._padded(view, block, dtype, weighted=strategy == "padded")
        return view

    def _padded(self, view: View, block: Block, dtype: torch.dtype, *, weighted: bool) -> View:
        """Add a silent vertex whose edges make up for the degree that each column lacks in the block.

        That is one edge with the weight that is lacking, or, where the module counts edges, as many as lack.
        """
        if weighted and not self.takes_weight:
            raise TypeError("takes no edge weights")
        if not weighted and block.edge_weight is not None:
            raise TypeError("counts edges, while the degrees of a weighted graph are sums of weights")
        weight = view.edge_weight
        if weight is None:
            weight = torch.ones_like(view.source, dtype=dtype)
        silent = view.num_vertices
        zero = weight.new_zeros(silent)
        lacks_in = block.in_degree.to(dtype) - zero.index_add(0, view.destination, weight)
        lacks_out = block.out_degree.to(dtype) - zero.index_add(0, view.source, weight)
        columns = torch.arange(silent, device=weight.device)
        into = columns.repeat_interleave((lacks_in != 0).long() if weighted else lacks_in.round().long())
        out_of = columns.repeat_interleave((lacks_out != 0).long() if weighted else lacks_out.round().long())
        # A loop of its own, for modules that refuse vertices without in-edges.
        loop = columns.new_full((1,), silent)
        edge_attr = view.edge_attr
        if edge_attr is not None:
            num_new = into.numel() + out_of.numel() + 1
            edge_attr = torch.cat([edge_attr, edge_attr.new_zeros(num_new, *edge_attr.shape[1:])])
        return View(
            view.num_rows,
            silent + 1,
            False,
            torch.cat([view.source, torch.full_like(into, silent), out_of, loop]),
            torch.cat([view.destination, into, torch.full_like(out_of, silent), loop]),
            torch.cat([weight, lacks_in[into], lacks_out[out_of], weight.new_ones(1)]) if weighted else None,
            edge_attr,
        )

    def _set_mode(self, rows: Rows) -> None:
        self.foreign.train(rows.training)
        for module in self.foreign.modules():
            if isinstance(module, _ForeignBatchNorm):
                module.recomputing = rows.recomputing

    def extra_repr(self) -> str:
        return f"strategy={self.strategy}"


class _ForeignBatchNorm(BatchNorm):
    """`BatchNorm` that is called by a foreign module, hence without `Rows`."""

    recomputing = False

    def forward(self, x: Tensor, rows: Rows | None = None) -> Tensor:
        return self.normalise(x, training=self.training, recomputing=self.recomputing)


def _defer_batch_norms(module: nn.Module) -> nn.Module:
    """Replace every `nn.BatchNorm1d` inside, in place."""
    if isinstance(module, nn.BatchNorm1d):
        return deferred_batch_norm(module, _ForeignBatchNorm)
    for name, child in module.named_children():
        replaced = _defer_batch_norms(child)
        if replaced is not child:
            setattr(module, name, replaced)
    return module


def _module_faults(module: nn.Module) -> list[str]:
    faults = []
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        faults.append("has parameters of unknown width (in_channels=-1); give the width")
    if getattr(module, "cached", False):
        faults.append("cached=True keeps the normalisation of the first rows it sees; use cached=False")
    return faults


@contextmanager
def _reseeded(rows: Rows, device: torch.device) -> Iterator[None]:
    """Torch's generators as a function of (seed, step, layer, micro-batch), and restored afterwards.

    A micro-batch is told by its first vertex: chunks of one step have different ones, in any order.
    """
    if not rows.training or len(rows.ids) == 0:
        yield
        return
    key = f"{rows.seed}/{rows.step}/{rows.layer}/{int(rows.ids[0])}".encode()
    seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
