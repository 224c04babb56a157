"""GCNII and GAT on the whole graph from their papers' formulas, in dense algebra without any layer code, and
the gradient of one chunked step as a single autograd graph."""

import copy
import math

import torch
from torch.nn import functional as F

from gnnpar.graph.kernels import DropoutKey, edge_keep_mask, keep_mask

__all__ = ["IndependentGAT", "IndependentGCNII", "scaled_autograd_gradient"]

ALPHA, THETA = 0.1, 0.5


class Independent:
    """Shares with a model the names and values of its parameters at the start, and nothing else."""

    def __init__(self, model, graph, seed, p=0.3, attention_p=0.2, heads=2):
        self.params = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.seed, self.p, self.attention_p, self.heads, self.t = seed, p, attention_p, heads, 0
        self.num_layers = len({name.split(".")[1] for name in self.params if name.startswith("layers.")})
        self.x = graph.x if torch.is_tensor(graph.x) else graph.x.to_dense()
        self.y, self.n = graph.y, graph.num_nodes
        self.used = graph.train_mask & (graph.y >= 0)
        self.a = torch.zeros(self.n, self.n, dtype=torch.float64)
        for source, destination in graph.edge_index.T.tolist():
            self.a[destination, source] += 1

    def step(self, lr):
        """Loss and gradients; then one update of plain gradient descent."""
        leaves = {name: p.requires_grad_() for name, p in self.params.items()}
        loss = F.cross_entropy(self.logits(leaves)[self.used], self.y[self.used])
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        self.params = {name: p.detach() - lr * gradients[name] for name, p in leaves.items()}
        self.t += 1
        return loss.item(), gradients

    def dropout(self, x, layer):
        keep = keep_mask(DropoutKey(self.seed, self.t, layer, 0), torch.arange(self.n), x.shape[1], self.p)
        return x * keep / (1 - self.p)

    def encode(self, w):
        return torch.relu(self.dropout(self.x, 0) @ w["encoder.weight"] + w["encoder.bias"])

    def decode(self, h, w):
        h = self.dropout(h, self.num_layers + 1)
        return h @ w["decoder.linear.weight"].T + w["decoder.linear.bias"]


class IndependentGCNII(Independent):
    """h ← relu(((1-α) Â h + α h0) ((1-β) I + β W)), β = log(θ/l + 1), Â = D^-1/2 (A + I) D^-1/2."""

    def logits(self, w):
        loops = self.a + torch.eye(self.n)
        root = loops.sum(1).rsqrt()
        a = torch.diag(root) @ loops @ torch.diag(root)
        h = h0 = self.encode(w)
        for layer in range(1, self.num_layers + 1):
            z = (1 - ALPHA) * (a @ self.dropout(h, layer)) + ALPHA * h0
            beta = math.log(THETA / layer + 1)
            h = torch.relu((1 - beta) * z + beta * (z @ w[f"layers.{layer - 1}.weight"]))
        return self.decode(h, w)


class IndependentGAT(Independent):
    """h_v ← elu(‖_k Σ_u dropout(softmax_u leaky_relu(s·W x_u + t·W x_v)) W x_u + b), u in-edges and v."""

    def logits(self, w):
        ids = torch.arange(self.n)
        pairs = ids.repeat_interleave(self.n), ids.repeat(self.n)
        absent = (self.a == 0) & ~torch.eye(self.n, dtype=torch.bool)
        h = self.encode(w)
        for layer in range(1, self.num_layers + 1):
            of = {key: w[f"layers.{layer - 1}.{key}"] for key in ("source", "destination", "bias")}
            x = self.dropout(h, layer) @ w[f"layers.{layer - 1}.linear.weight"].T
            key = DropoutKey(self.seed, self.t, layer, 1)
            keep = edge_keep_mask(key, *pairs, self.heads, self.attention_p)
            keep = keep.view(self.n, self.n, self.heads)
            outputs = []
            for k, xk in enumerate(x.chunk(self.heads, 1)):
                score = (xk @ of["destination"][k])[:, None] + (xk @ of["source"][k])[None, :]
                share = F.leaky_relu(score, 0.2).masked_fill(absent, -math.inf).softmax(1)
                outputs.append((share * keep[:, :, k] / (1 - self.attention_p)) @ xk)
            h = F.elu(torch.cat(outputs, 1) + of["bias"])
        return self.decode(h, w)


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def scaled_autograd_gradient(reference, stored, state, t, order):
    """Loss and gradients of one step after warm-up, from one autograd graph over all chunks.

    What a chunk reads of earlier chunks keeps its graph, with the gradient times γ on the way back; histories
    are constants. `stored`, `state`, `t`: of the reference before the step.
    """
    if t < reference.history.warmup_steps:
        slots, chunk_of = [[0]], torch.zeros_like(reference.chunk_of)
    else:
        width, chunk_of = reference.slot_size, reference.chunk_of
        slots = [order[at : at + width] for at in range(0, len(order), width)]
    twin = copy.copy(reference)
    twin.model = copy.deepcopy(reference.model)
    twin.model.load_state_dict(state)
    twin.layers, twin.t, twin.stored = list(twin.model.all_layers()), t, stored
    current = {}
    total = 0.0
    for i, slot in enumerate(slots):
        own = torch.isin(chunk_of, torch.tensor(slot)).nonzero()[:, 0]
        streams = reference.streams or [0] * len(slots)
        before = [
            c for place, done in enumerate(slots[: i + 1]) for c in done if streams[place] == streams[i]
        ]
        visible = torch.isin(chunk_of, torch.tensor(before))
        part, now = scaled_forward(twin, own, visible, current)
        total = total + part
        current |= now
    names, params = zip(*twin.model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(total, params, allow_unused=True, materialize_grads=True)
    return total.item(), dict(zip(names, gradients, strict=True))


def scaled_forward(twin, own, visible, current):
    """One slot; `current`: (layer, vertex) → row of the cut, with its graph."""
    x, carries, now = twin.x[own], {"features": twin.x[own]}, {}
    drops = twin.history.mode == "drop"
    for k, layer in enumerate(twin.layers):
        rows, z = twin.rows(k, own), x
        if layer.operator is not None:
            cut = layer.before(x, carries, rows)
            mine = dict(zip(own.tolist(), cut.unbind(0), strict=True))
            read = []
            for v in range(len(visible)):
                if v in mine:
                    read.append(mine[v])
                elif visible[v]:
                    read.append(ScaleGradient.apply(current[k, v], twin.history.gamma))
                else:
                    read.append(torch.zeros_like(cut[0]) if drops else twin.stored[k][v])
            now |= {(k, v): row for v, row in mine.items()}
            z = twin.aggregate(k, torch.stack(read), own, visible)
        result = layer.after(z, x, carries, rows)
        x, written = result if isinstance(result, tuple) else (result, {})
        carries |= {**written, twin.keeps[k]: x} if k in twin.keeps else written
    wanted = twin.wanted[own]
    loss = F.cross_entropy(x[wanted], twin.graph.y[own][wanted], reduction="sum")
    return loss / twin.wanted.sum(), now
