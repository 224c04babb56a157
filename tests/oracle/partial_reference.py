"""Training in steps over some of the chunks, as it is published, in the dense algebra of `DenseReference`.

GAS (Fey et al. 2021, §3): a step runs some chunks, reads all others as they were when they last ran, and
gives them no gradient. The loss is the mean over the step's labels.

Compensation (after Shi et al. 2023, β = 0): a chunk outside the step sends what it sent when it last ran,

    ∂X_l[c] += Σ_{d outside} Â[d,c]ᵀ · D_l[d]   as of the last step of d; zero before it has run,

and the loss is divided by the mean number of labels of a step. A refresh writes all histories exactly.
"""

import torch
from oracle.dense_reference import DenseReference, Step, vjp


class PartialReference(DenseReference):
    """Args as `DenseReference`, and `num_steps` of an epoch. Compensation and refreshes: of `history`."""

    def __init__(self, *args, num_steps=1):
        super().__init__(*args)
        self.num_steps, self.sent, self.ran_in = num_steps, {}, torch.zeros_like(self.chunk_of)

    def step(self, order):
        h, t = self.history, self.t
        since = t - h.warmup_steps
        everything = torch.arange(len(self.x))
        refreshes = h.refresh_every is not None and since > 0 and since % h.refresh_every == 0
        if h.mode == "latest" and (refreshes or t == since == 0):
            self.cuts = {}
            self.forward(everything, everything >= 0)
            self.stored, self.ran_in = self.cuts, torch.full_like(self.chunk_of, t)
        exact = since < 0 or self.slot_size == self.chunk_of.max() + 1
        position = torch.full_like(self.chunk_of, len(order) // self.slot_size)
        for place, chunk in enumerate(order):
            position[self.chunk_of == chunk] = place // self.slot_size
        position = torch.zeros_like(position) if exact else position
        slots = [(position == i).nonzero()[:, 0] for i in range(1 if exact else len(order) // self.slot_size)]
        runs = position < len(slots)
        streams = (0,) * len(slots) if exact or not self.streams else self.streams
        stream = torch.tensor((*streams, -1))[position]
        same = [stream == stream[own[0]] for own in slots]
        self.normaliser = max(1, self.wanted[runs].sum())
        if h.compensate:
            self.normaliser = self.wanted.sum() / self.num_steps

        self.cuts, self.gradient = {}, {name: torch.zeros_like(p) for name, p in self.params.items()}
        tapes = [self.forward(own, same[i] & (position <= i)) for i, own in enumerate(slots)]
        self.d_cuts = {k: torch.zeros_like(x) for k, x in self.cuts.items()}
        if h.compensate:
            for (k, chunk), sent in self.sent.items():
                self.d_cuts[k] += sent * (not runs[self.chunk_of == chunk].any())
        for i in reversed(range(len(slots))):
            scale = same[i] * ((position == i).double() + h.gamma * (position < i).double())
            self.backward(slots[i], same[i] & (position <= i), scale[:, None], *tapes[i])
        for name, p in self.params.items():
            p.grad = self.gradient[name]
        self.optimizer.step()

        read = (position[self.src] > position[self.dst]) | (stream[self.src] != stream[self.dst])
        read = read & runs[self.dst] & (h.mode != "drop")
        ages = (t - self.ran_in[self.src])[read].double() if read.any() else torch.zeros(1)
        share = read.sum().item() / runs[self.dst].sum().item()
        self.ran_in = torch.where(runs, t, self.ran_in)
        old = self.stored or self.cuts
        self.stored = {k: torch.where(runs[:, None], x, old[k]) for k, x in self.cuts.items()}
        self.t += 1
        loss = sum(tape[0].item() for tape in tapes)
        return Step(loss, self.gradient, ages.mean().item(), share)

    def backward(self, own, visible, scale, loss, cuts, leaves, seen):
        """As the base class, and notes what each chunk of the slot sends back, all by itself."""
        ends, seeds = [loss], [torch.ones_like(loss)]
        for k in reversed(self.graph_layers):
            (d,) = vjp(ends, seeds, [leaves[k]], retain_graph=True)
            for chunk in self.chunk_of[own].unique().tolist():
                z = self.aggregate(k, seen[k], own, visible)
                mine = (self.chunk_of[own] == chunk)[:, None]
                (sent,) = self.pull_back([z], [d * mine], [seen[k]])
                self.d_cuts[k] += scale * sent
                if self.history.compensate:
                    self.sent[k, chunk] = sent
            ends, seeds = [*ends, cuts[k]], [*seeds, self.d_cuts[k][own]]
        self.pull_back(ends, seeds, [])
