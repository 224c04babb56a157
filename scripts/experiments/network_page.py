"""Notes, tables and verdicts of results/tables/network.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.bench.report import table
from scripts.experiments.network_bytes import Volume

__all__ = ["Measured", "page"]

NAMES = {"graph": "graph parallel, 4 ways", "pipeline": "pipeline, 4 stages", "hybrid": "hybrid, 2 × 2"}


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        epoch_s: median over the epochs, of the slowest rank. cpu_s: the same of CPU seconds, ranks added up.
        waiting: share of an epoch spent waiting for other ranks, mean over ranks. bubble: the schedule's own.
        memory: largest resident set, bytes of the rank that has most. split: layers of each stage.
        sent: bytes of an epoch by kind, as counted by those who send; `volume` says the same.
        mirrors: R of as many parts as there are ways.
    """

    network: str
    graph: str
    system: str
    epoch_s: float
    cpu_s: float
    waiting: float
    bubble: float
    memory: int
    split: list[int]
    sent: Mapping[str, int]
    volume: Volume
    mirrors: int

    @property
    def num_ranks(self) -> int:
        return self.volume.stages * self.volume.ways

    @property
    def alpha(self) -> float:
        """Mirrors a vertex."""
        return self.mirrors / self.volume.num_nodes

    @property
    def total(self) -> int:
        return sum(self.sent.values())

    @property
    def busiest(self) -> float:
        """Bytes that the busiest link takes in one direction, were halos and gradients even over the ranks.

        An inner stage sends to both neighbours, so with S stages one S - 1st of all that crosses boundaries,
        with two stages half of it; each shared out among the ways.
        """
        stage = self.sent.get("stage", 0) / max(self.volume.stages - 1, min(self.volume.stages, 2))
        return stage / self.volume.ways + (self.total - self.sent.get("stage", 0)) / self.num_ranks


def page(found: Sequence[Measured], rates: Mapping[str, float], num_epochs: int, cores: float) -> list[str]:
    """All parts of the page but command and machine."""
    measured = ", ".join(f"{name}: {rate / 1e6:,.0f} MB/s" for name, rate in rates.items())
    notes = f"""\
GCNII of {found[0].volume.num_layers} layers of width {found[0].volume.width} with dropout .5, float32,
on four ranks of one thread: four ways of one stage (`graph_parallel`, exact), four stages of 16 chunks
(`gnnpipe`), two stages of two ways and 8 slots (`gnnpipe_hybrid`; both with γ = 1 and the latest
history). ogbn-arxiv has 40 substitute features, flickr-nofeat 500 generated ones: neither changes what
is computed or sent elsewhere. These two recompute (`memory.recompute=true`), whatever the system.

Every rank may use {cores / found[0].num_ranks:g} of a core and no more (quota of a cgroup, {PERIOD}),
on either network, because four ranks on two cores would otherwise favour whoever waits: what a waiting
rank leaves would be the others'. Networks: *loopback*, and a namespace a rank, joined by a bridge, each
link shaped by a token bucket in both directions. One TCP stream between two ranks was measured at
{measured}.

*epoch*: median of {num_epochs} epochs, the first ones included, of the slowest rank. *CPU*: seconds of
all ranks together, threads of the transport included, the kernel's own work for packets in part.
*waiting*: share of an epoch in which a rank waits for messages or for the shared loss, mean over ranks;
*of it bubble*: what the schedule alone explains were all passes equally long. *link*: bytes of the
busiest rank in one direction ÷ the rate measured. *MiB*: largest resident set of the largest rank, one exact
evaluation included (huge pages off). Layers of stages were balanced by measurement on
loopback and are the same behind links."""
    head = ("epoch", "epoch s", "CPU s", "waiting", "of it bubble", "MB sent", "link s", "MiB", "layers")
    parts = [notes]
    for network, rate in rates.items():
        rows = [
            (
                f"{one.graph}, {NAMES[one.system]}",
                f"{one.epoch_s:.3f}",
                f"{one.cpu_s:.3f}",
                f"{one.waiting:.0%}",
                f"{one.bubble:.0%}",
                f"{one.total / 1e6:,.1f}",
                f"{one.busiest / rate:.3f}" if network != "loopback" else "–",
                f"{one.memory / 2**20:,.0f}",
                "+".join(map(str, one.split)),
            )
            for one in found
            if one.network == network
        ]
        parts += [f"## {network}", table(head, rows)]
    first = [one for one in found if one.network == found[0].network]
    return [
        *parts,
        "## Bytes",
        BYTES,
        _bytes_table(first),
        "## Where the pipeline loses, and why",
        WHY.format(
            even=2 * (found[0].num_ranks - 1) / found[0].volume.num_layers,
            least=min((one.alpha for one in found if one.volume.ways == one.num_ranks), default=math.nan),
        ),
        *_verdicts(found),
    ]


PERIOD = "period 10 ms"

BYTES = """\
Bytes of an epoch, as counted where they are sent. Each run was compared with its closed form, counted
anew from the graph, the parts and the order of the chunks, and is equal to the byte, on both networks:

- stage = 16 · (S - 1) · N · K: h and h0 forward, their gradients backward;
- halo = 4 · L · K · (rows of X + rows of D that another way reads); with one chunk a way 8 · L · K · R;
- weight = 4 · W (W - 1) · |θ|, all holders to all others (a ring would send 8 (W - 1) |θ| altogether);
- control = W (W - 1) a parameter tensor.

*α*: mirrors R ÷ N of the ways' parts. *÷ pipeline*: all bytes beside those of the pipeline; halo ÷ stage
alone is L · α ÷ (2 (S - 1))."""

WHY = """\
- **Bytes.** A pipeline sends N rows at each of S - 1 boundaries, however deep the model; graph
  parallelism αN rows at each of L layers. With h0 beside h the pipeline sends less where α > 2 (S - 1)
  / L, here {even:.2f}; the least α of these graphs is {least:.2f}. A graph that cuts so well that it is
  below has less to send in graph parallelism. Behind a link an inner stage sends to both neighbours, an
  end to one.
- **Weights** speak for the pipeline: ways hold all of them, send their gradients to each other, and
  update them all, which counts where the input is wide and the graph small.
- **Bubble.** (S - 1) / (C + S - 1) of the time goes by while the pipeline fills and drains, which graph
  parallelism has not.
- **Many small passes.** 16 chunks make 16 times as many, smaller passes, and as many messages; on a
  small graph a pass costs as much for being one as for its rows. Graph parallelism has one pass a
  layer, but one exchange a layer and direction as well, in which everyone waits for the slowest link.
- **Stages are not equal.** The first one also has the encoder, the last one the decoder and the loss;
  layers can only be dealt out whole.
- **Not in these columns:** graph parallelism is exact, while the pipeline and the hybrid read rows of
  the step before where a chunk has not run yet.
- **The hybrid** pays for both: boundaries and, in every slot, an exchange a layer and direction: 8
  times as many exchanges of an eighth of the rows each, so that latency counts. It has fewer mirrors
  (two parts in place of four) and a shorter bubble."""


def _bytes_table(found: Sequence[Measured]) -> str:
    totals = {(one.graph, one.system): one.total for one in found}
    rows = []
    for one in found:
        pipeline = totals.get((one.graph, "pipeline"))
        rows.append(
            (
                f"{one.graph}, {NAMES[one.system]}",
                f"{one.alpha:.2f}" if one.volume.ways > 1 else "–",
                *(f"{one.sent.get(kind, 0):,}" for kind in ("stage", "halo", "weight", "control")),
                f"{one.total / pipeline:.2f}" if pipeline else "–",
            )
        )
    return table(("bytes of an epoch", "α", "stage", "halo", "weight", "control", "÷ pipeline"), rows)


def _verdicts(found: Sequence[Measured]) -> list[str]:
    """A line a network and graph: who was first, and the pipeline beside graph parallelism."""
    lines = []
    for network in dict.fromkeys(one.network for one in found):
        for graph in dict.fromkeys(one.graph for one in found):
            of = {one.system: one for one in found if (one.network, one.graph) == (network, graph)}
            if not {"graph", "pipeline"} <= of.keys():
                continue
            first = min(of.values(), key=lambda one: one.epoch_s)
            ours, theirs = of["pipeline"], of["graph"]
            waits = [f"{one.waiting * one.epoch_s:.3f} s" for one in (ours, theirs)]
            lines.append(
                f"- {graph}, {network}: first is {NAMES[first.system]}. The pipeline takes "
                f"{ours.epoch_s / theirs.epoch_s:.2f} times as long as graph parallelism, with "
                f"{ours.cpu_s / theirs.cpu_s:.2f} times the CPU time and "
                f"{ours.total / theirs.total:.2f} times the bytes, "
                f"and waits {waits[0]} an epoch, that {waits[1]}."
            )
    return ["\n".join(lines)] if lines else []
