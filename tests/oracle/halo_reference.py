"""Graph parallelism whose ways read each other's rows in some approximation, in dense float64 algebra.

Way w aggregates its own rows from X̃: its own X, and what `read` says it sees of the others'. Backward, its
vector-Jacobian products at columns of others reach their owners as `returned` says. The base class is exact.
"""

import torch
from oracle.dense_reference import DenseReference, Step, vjp
from torch.nn import functional as F

from gnnpar.graph.kernels import DropoutKey, keep_mask
from gnnpar.graph.kernels.keys import entry_hash, row_words


class WaysReference(DenseReference):
    """`ways_of`: {layer that aggregates: ways}; way w of g has chunks w · C/g to (w + 1) · C/g - 1."""

    def __init__(self, model, graph, chunk_of, history, optimizer, seed, ways_of):
        super().__init__(model, graph, chunk_of, history, optimizer, seed)
        count = int(chunk_of.max()) + 1
        self.ways_of = ways_of
        self.way_of = {g: chunk_of.long() * g // count for g in {*ways_of.values()}}
        self.everything = torch.ones(graph.num_nodes, dtype=torch.bool)
        self.bytes = self.control = 0
        self.ages = {}

    def own(self, k, w):
        return (self.way_of[self.ways_of[k]] == w).nonzero()[:, 0]

    def mirrors(self, k, w):
        """`[N]` bool: rows of other ways that way w reads."""
        way_of = self.way_of[self.ways_of[k]]
        mask = torch.zeros_like(self.everything)
        mask[self.src[(way_of[self.dst] == w) & (way_of[self.src] != w)]] = True
        return mask

    def read(self, k, w, x):
        """What way w sees as layer k's cut `[N, K]`; its own rows are taken from x in any case."""
        return x

    def returned(self, k, w, g, d):
        """What of g `[N, K]`, the gradients of way w for all columns, reaches their owners.

        d `[N, K]`: of the aggregation's output.
        """
        return g

    def count(self, k, tail):
        """Count the bytes of a layer: forward and backward rows of `tail` numbers."""
        for w in range(self.ways_of[k]):
            way_of = self.way_of[self.ways_of[k]]
            forward = int(self.mirrors(k, w).sum())
            crossing = (way_of[self.dst] != w) & (way_of[self.src] == w)
            backward = len(self.dst[crossing].unique()) if k in self.matrices else forward
            self.count_rows(k, w, forward, backward, tail)

    def count_rows(self, k, w, forward, backward, tail):
        """`forward` rows come to way w, which reads them; `backward` rows come or go for them."""
        self.bytes += 8 * tail * (forward + backward)
        self.age(0, forward)

    def age(self, age, rows):
        pass

    def step(self):
        """One update; a `Step`, and the bytes of its halo and control messages in `bytes`, `control`."""
        self.bytes = self.control = 0
        self.ages = {}
        self.gradient = {name: torch.zeros_like(p) for name, p in self.params.items()}
        loss, cuts, leaves, seen = self.run_forward()
        ends, seeds = [loss], [torch.ones_like(loss)]
        for k in reversed(self.graph_layers):
            (d,) = vjp(ends, seeds, [leaves[k]], retain_graph=True)
            d_cut = torch.zeros_like(cuts[k])
            for w in range(self.ways_of[k]):
                own = self.own(k, w)
                z = self.aggregate(k, seen[k, w], own, self.everything)
                g = self.pull_back([z], [d[own]], [seen[k, w]])[0]
                sent = g if self.ways_of[k] == 1 else self.returned(k, w, g, d)
                d_cut += torch.where(self.mask(own)[:, None], g, sent)
            if self.ways_of[k] > 1:
                self.count(k, cuts[k].shape[1])
            ends, seeds = [*ends, cuts[k]], [*seeds, d_cut]
        self.pull_back(ends, seeds, [])
        for name, p in self.params.items():
            p.grad = self.gradient[name]
        self.optimizer.step()
        self.t += 1
        return Step(loss.item(), self.gradient, 0, 0.0)

    def run_forward(self):
        x, cuts, leaves, seen = self.x, {}, {}, {}
        every = torch.arange(len(self.x))
        carries = {"features": x}
        for k, layer in enumerate(self.layers):
            z = x
            if k in self.graph_layers:
                cuts[k] = layer.before(x, carries, self.rows(k, every))
                now, parts = cuts[k].detach(), torch.zeros(len(x), 0)
                for w in range(self.ways_of[k]):
                    own = self.own(k, w)
                    found = now if self.ways_of[k] == 1 else self.read(k, w, now)
                    seen[k, w] = torch.where(self.mask(own)[:, None], now, found).requires_grad_()
                    part = self.aggregate(k, seen[k, w], own, self.everything).detach()
                    parts = part.new_zeros(len(x), part.shape[1]) if w == 0 else parts
                    parts[own] = part
                z = leaves[k] = parts.requires_grad_()
            result = layer.after(z, x, carries, self.rows(k, every))
            x, written = result if isinstance(result, tuple) else (result, {})
            carries |= {**written, self.keeps[k]: x} if k in self.keeps else written
        y, wanted = self.graph.y, self.wanted
        loss = F.cross_entropy if y.dim() == 1 else F.binary_cross_entropy_with_logits
        return loss(x[wanted], y[wanted], reduction="sum") / wanted.sum(), cuts, leaves, seen

    def mask(self, own):
        return torch.isin(torch.arange(len(self.x)), own)


class StaleReference(WaysReference):
    """PipeGCN: features and gradients of the step before, or their running means."""

    def __init__(self, *args, smooth_features=0.0, smooth_gradients=0.0):
        super().__init__(*args)
        self.decay = smooth_features, smooth_gradients
        self.sent, self.mean = {}, {}

    def late(self, key, value, decay):
        if self.t < self.history.warmup_steps:
            self.mean[key] = result = value
        else:
            first = self.t == self.history.warmup_steps
            self.mean[key] = result = (
                self.sent[key] if first else decay * self.mean[key] + (1 - decay) * self.sent[key]
            )
        self.sent[key] = value
        return result

    def read(self, k, w, x):
        return self.late((k, w, "x"), x.clone(), self.decay[0])

    def returned(self, k, w, g, d):
        return self.late((k, w, "g"), g.clone(), self.decay[1])

    def age(self, age, rows):
        age = int(self.t >= self.history.warmup_steps)
        self.ages[age] = self.ages.get(age, 0) + rows


def drawn(seed, step, way, ids, rate):
    """`[n]` bool: which rows the way reads in a step."""
    return keep_mask(DropoutKey(seed, step, way, 1 << 16), ids, 1, 1 - rate)[:, 0]


class SampledReference(WaysReference):
    """BNS-GCN: every row of another way with probability `rate`, over that; its gradient likewise."""

    def __init__(self, *args, rate=1.0):
        super().__init__(*args)
        self.rate = rate

    def factor(self, w):
        """`[N, 1]`: what rows of others are multiplied by where way w reads them."""
        rows = drawn(self.seed, self.t, w, torch.arange(len(self.x)), self.rate)
        return (rows.double() / self.rate)[:, None]

    def read(self, k, w, x):
        return x * self.factor(w)

    def returned(self, k, w, g, d):
        return g * self.factor(w)

    def count_rows(self, k, w, forward, backward, tail):
        rows = int((self.mirrors(k, w) & (self.factor(w)[:, 0] > 0)).sum())
        super().count_rows(k, w, rows, rows, tail)


def rounded(x, bits, key):
    """x `[N, K]` with every row rounded to 2^bits evenly spaced numbers between its least and its largest."""
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    words = (word[:, None] for word in row_words(torch.arange(len(x)), *key.words()))
    chance = ((entry_hash(*words, torch.arange(x.shape[1])) >> 9).double() + 0.5) / 2**23
    codes = ((x - low) / torch.where(step > 0, step, 1.0) + chance).floor()
    return low + codes.clamp(0, 2**bits - 1) * step


class QuantisedReference(WaysReference):
    """AdaQP with given bits: cuts, and rows of D (or sums by column), rounded on their way."""

    def __init__(self, *args, bits):
        super().__init__(*args)
        self.bits = bits

    def rounded(self, k, way, x, backward):
        return rounded(x, self.bits, DropoutKey(self.seed, self.t, k, (1 << 17) + 2 * way + backward))

    def read(self, k, w, x):
        found = torch.empty_like(x)
        for way in range(self.ways_of[k]):
            own = self.own(k, way)
            found[own] = self.rounded(k, way, x, False)[own]
        return found

    def returned(self, k, w, g, d):
        if k not in self.matrices:
            return self.rounded(k, w, g, True) * self.mirrors(k, w)[:, None]
        own = self.own(k, w)
        return self.matrices[k][own].T @ self.rounded(k, w, d, True)[own]

    def count_rows(self, k, w, forward, backward, tail):
        self.bytes += (-(-tail * self.bits // 8) + 16) * (forward + backward)


class BoundedReference(WaysReference):
    """SANCUS: cuts as they were last sent; again after `period` steps, or changed by more than `bound`."""

    def __init__(self, *args, period=1, bound=None):
        super().__init__(*args)
        self.period, self.bound = period, bound
        self.sent, self.at, self.fresh = {}, {}, {}
        self.scale = {k: self.column_scale(self.layers[k].operator) for k in self.graph_layers}

    def column_scale(self, operator):
        """`[N, 1]`: what cuts are stored, and so compared, times."""
        if getattr(operator, "norm", None) != "sym":
            return torch.ones(len(self.x), 1).double()
        weight = self.graph.edge_weight
        weight = torch.ones(len(self.src)).double() if weight is None else weight
        degree = torch.zeros(len(self.x)).double().index_add_(0, self.dst, weight) + operator.self_loops
        return torch.where(degree > 0, degree**-0.5, 0.0)[:, None]

    def read(self, k, w, x):
        found = torch.full_like(x, torch.nan)
        for way in range(self.ways_of[k]):
            rows = self.mirrors(k, w) & (self.way_of[self.ways_of[k]] == way)
            if not rows.any():
                continue
            key, now = (k, way, w), (x * self.scale[k])[rows]
            due = self.t < self.history.warmup_steps or self.t - self.at[key] >= self.period
            if not due and self.bound is not None:
                self.control += 1
                due = (now - self.sent[key]).norm() > self.bound * self.sent[key].norm()
            if due:
                self.sent[key], self.at[key], self.fresh[key] = now, self.t, x[rows].clone()
            self.bytes += 8 * x.shape[1] * int(rows.sum()) * bool(due)
            age = self.t - self.at[key]
            self.ages[age] = self.ages.get(age, 0) + int(rows.sum())
            found[rows] = self.fresh[key]
        # Whatever is no mirror is not read.
        return torch.where(self.mirrors(k, w)[:, None], found, 0.0)

    def count_rows(self, k, w, forward, backward, tail):
        self.bytes += 8 * tail * backward
