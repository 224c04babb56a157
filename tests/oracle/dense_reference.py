"""The definition of chunked training, written once more in dense float64 algebra: nothing fast, nothing
shared.

    Z_l[c]  = Σ_d Â[c,d] · X̃_l[d]          X̃_l[d] = X_l[d] of this step if π(d) ≤ π(c), else its history
    ∂X_l[c] = Σ_{d: π(d) ≥ π(c)} s(c,d) · Â[d,c]ᵀ · D_l[d]      s = 1 if π(d) = π(c), γ if π(d) > π(c)

π is the slot: so many chunks run together as a slot holds, one unless it is said otherwise.
With several streams the sums above are over the chunks of c's own stream; the history of all others is read.

Of the package it uses the layers' row-wise parts and push functions, and the hash that defines dropout masks.
Cuts are `[N, K]`; an unwritten row is NaN.
"""

from collections import namedtuple

import torch
from torch.nn import functional as F

from gnnpar.graph.block import Block
from gnnpar.graph.kernels import keep_mask
from gnnpar.model import Pull, Rows


class PlainRows(Rows):
    """Dropout as a plain product with the mask."""

    def dropout(self, x, p, site=0):
        return x * keep_mask(self.key(site), self.ids, x.shape[1], p) / (1 - p) if p else x

    def relu_dropout(self, x, p, site=0):
        return self.dropout(x.relu(), p, site)


Step = namedtuple("Step", "loss gradients age share")


class DenseReference:
    """Trains `model` (float64, in place) on `graph`, whose vertex v lies in chunk `chunk_of[v]`.

    `streams`: which stream each slot belongs to (None: all to one).
    `slot_size`: chunks of a slot, next to each other in the order.
    """

    def __init__(self, model, graph, chunk_of, history, optimizer, seed=0, streams=None, slot_size=1):
        self.streams, self.slot_size = streams, slot_size
        self.model, self.graph, self.chunk_of, self.history = model, graph, chunk_of, history
        self.optimizer, self.seed, self.t, self.stored = optimizer, seed, 0, {}
        self.layers, self.params = list(model.all_layers()), dict(model.named_parameters())
        self.keeps = model.keeps
        self.graph_layers = [k for k, layer in enumerate(self.layers) if layer.operator is not None]
        self.x = graph.x if torch.is_tensor(graph.x) else graph.x.to_dense()
        self.src, self.dst = graph.edge_index
        self.wanted = (graph.y >= 0) & graph.train_mask.view(-1, *[1] * (graph.y.dim() - 1))  # NaN ≥ 0: no
        self.normaliser = self.wanted.sum()
        operators = {k: self.layers[k].operator for k in self.graph_layers}
        self.matrices = {k: self.matrix(op) for k, op in operators.items() if isinstance(op, Pull)}

    def matrix(self, operator):
        """Â of a fixed linear aggregation, `[N, N]`."""
        n, weight = self.graph.num_nodes, self.graph.edge_weight
        weight = torch.ones(len(self.src)).double() if weight is None else weight
        a = torch.zeros(n, n).double().index_put_((self.dst, self.src), weight, accumulate=True)
        a = a + torch.eye(n) if operator.self_loops else a
        power = {"sym": (-0.5, -0.5), "mean": (-1.0, 0.0), "sum": (0.0, 0.0)}[operator.norm]
        r, c = (torch.where(a.sum(1) > 0, a.sum(1) ** p, 0.0) if p else torch.ones(n) for p in power)
        return r[:, None] * a * c

    def aggregate(self, k, x, own, visible):
        """Z of the vertices `own`, from x `[N, K]`; `drop` leaves edges of others than `visible` out."""
        if k in self.matrices:
            return self.matrices[k][own] @ x
        may_read = visible | (self.history.mode != "drop")
        columns = torch.cat([own, torch.isin(torch.arange(len(x)), own, invert=True).nonzero()[:, 0]])
        local, g = torch.argsort(columns), self.graph
        edge = (torch.isin(self.dst, own) & may_read[self.src]).nonzero()[:, 0]
        edge = edge[torch.argsort(local[self.dst[edge]], stable=True)]
        indptr = F.pad(torch.bincount(local[self.dst[edge]], minlength=len(own)).cumsum(0), (1, 0))
        more = [g.in_degree[columns], g.out_degree[columns]]
        more += [None if v is None else v[edge] for v in (g.edge_weight, g.edge_attr)]
        block = Block(len(own), indptr, local[self.src[edge]], own, columns, *more)
        return self.layers[k].aggregate(x[columns], block, self.rows(k, own))

    def rows(self, k, own):
        return PlainRows(own, self.seed, self.t, k, True)

    def step(self, order):
        """One update, chunks in the given order."""
        h, t, position = self.history, self.t, torch.zeros_like(self.chunk_of)
        if not (exact := t < h.warmup_steps):
            position = torch.as_tensor(order).argsort()[self.chunk_of.long()] // self.slot_size
        count = 1 if exact else len(order) // self.slot_size
        slots = [(position == i).nonzero()[:, 0] for i in range(count)]
        self.cuts, self.gradient = {}, {name: torch.zeros_like(p) for name, p in self.params.items()}
        stream = (
            torch.zeros_like(position) if exact or not self.streams else torch.tensor(self.streams)[position]
        )
        same = [stream == stream[own[0]] for own in slots]
        tapes = [self.forward(own, same[i] & (position <= i)) for i, own in enumerate(slots)]
        self.d_cuts = {k: torch.zeros_like(x) for k, x in self.cuts.items()}
        for i in reversed(range(len(slots))):
            scale = same[i] * ((position == i).double() + h.gamma * (position < i).double())
            self.backward(slots[i], same[i] & (position <= i), scale[:, None], *tapes[i])
        for name, p in self.params.items():
            p.grad = self.gradient[name]
        self.optimizer.step()
        since = t - (h.warmup_steps - 1)
        if h.mode == "latest" or (h.mode == "snapshot" and since >= 0 and since % h.period == 0):
            self.stored = self.cuts
        age = {"latest": 1, "snapshot": (t - h.warmup_steps) % h.period + 1, "drop": 0}[h.mode]
        late = (position[self.src] > position[self.dst]) | (stream[self.src] != stream[self.dst])
        late = late.double().mean().item() * (h.mode != "drop")
        self.t += 1
        return Step(sum(tape[0].item() for tape in tapes), self.gradient, age if late else 0, late)

    def forward(self, own, visible):
        """One slot: its share of the loss, its cuts, its Z (leaves), and what each aggregation read."""
        x, cuts, leaves, seen = self.x[own], {}, {}, {}
        carries = {"features": x}
        for k, layer in enumerate(self.layers):
            z = x
            if k in self.graph_layers:
                cuts[k] = layer.before(x, carries, self.rows(k, own))
                unwritten = torch.full((len(visible), cuts[k].shape[1]), torch.nan).double()
                self.cuts.setdefault(k, unwritten.clone())[own] = cuts[k].detach()
                past = 0.0 if self.history.mode == "drop" else self.stored.get(k, unwritten)
                seen[k] = torch.where(visible[:, None], self.cuts[k], past).requires_grad_()
                z = leaves[k] = self.aggregate(k, seen[k], own, visible).detach().requires_grad_()
            result = layer.after(z, x, carries, self.rows(k, own))
            x, written = result if isinstance(result, tuple) else (result, {})
            carries |= {**written, self.keeps[k]: x} if k in self.keeps else written
        y, wanted = self.graph.y[own], self.wanted[own]
        loss = F.cross_entropy if y.dim() == 1 else F.binary_cross_entropy_with_logits
        return loss(x[wanted], y[wanted], reduction="sum") / self.normaliser, cuts, leaves, seen

    def backward(self, own, visible, scale, loss, cuts, leaves, seen):
        """One slot: D_l, the last layer first, and what it adds to ∂X_l of its own and of earlier slots."""
        ends, seeds = [loss], [torch.ones_like(loss)]
        for k in reversed(self.graph_layers):
            (d,) = vjp(ends, seeds, [leaves[k]], retain_graph=True)
            z = self.aggregate(k, seen[k], own, visible)
            self.d_cuts[k] += scale * self.pull_back([z], [d], [seen[k]])[0]
            ends, seeds = [*ends, cuts[k]], [*seeds, self.d_cuts[k][own]]
        self.pull_back(ends, seeds, [])

    def pull_back(self, outputs, seeds, inputs):
        """Gradients with respect to `inputs`; those of the parameters are added to the step's."""
        found = vjp(outputs, seeds, [*inputs, *self.params.values()])
        for name, g in zip(self.params, found[len(inputs) :], strict=True):
            self.gradient[name] += g
        return found[: len(inputs)]


def vjp(outputs, seeds, inputs, **keys):
    return torch.autograd.grad(outputs, inputs, seeds, allow_unused=True, materialize_grads=True, **keys)
