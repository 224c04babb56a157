"""`gnnpar systems`: every schedule family and preset beside each other, simulated."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gnnpar.cli.costs import COST_KEYS, COSTS_USAGE, split_costs, whole
from gnnpar.cli.options import split_options, wants_help
from gnnpar.cli.table import print_json, print_rows
from gnnpar.config.resources import resource_dir
from gnnpar.config.suggest import nearest
from gnnpar.errors import Faults, InputError
from gnnpar.schedule import Costs, Schedule, check, lower, simulate, with_reductions
from gnnpar.schedule.families import FAMILIES, Family

__all__ = ["Row", "main", "rows"]

USAGE = f"""usage: gnnpar systems [stages=4] [micro_batches=16] [KEY=VALUE …] [format=table|json]

Simulates every schedule family on `stages` ranks: bubble; peak of activations, in what one micro-batch keeps
on 1/stages of the layers; copies of the weights; messages in a step; and whether vertex chunks with history
may run in its order (any, or only with history.gamma=0). On clusters, which are independent, all are exact.

{COSTS_USAGE}  overlap=serial|full               parts of an overlapped pair: one after the other, or together
"""

CHOICES = {"format": ("table", "json"), "overlap": ("serial", "full"), "stages": (), "micro_batches": ()}

PRESETS = {
    "feature_parallel": "as graph_parallel, but a process sums over neighbours for a slice of the features",
    "full_batch": "the whole graph at once on one rank: no schedule, exact",
    "gnnpipe": "schedule gpipe on vertex chunks with history and accumulated gradients",
    "gnnpipe_hybrid": "gnnpipe with several ways a stage, whose chunks of one slot read each other's rows",
    "gas": "several updates an epoch, each over some vertex chunks; all others are read from history",
    "rest": "gas with forward passes between updates that renew the histories",
    "lmc": "gas in which chunks outside an update send back gradients of the step that they last ran in",
    "pipedream": "async_1f1b, backward with the weights of its forward",
    "pipedream_vertical": "async_1f1b, one version of the weights over all stages",
    "pipedream_2bw": "async_1f1b, two versions: gradients are one update late",
    "spectrain": "async_1f1b, weights predicted from the momentum, forward and backward",
    "xpipe": "async_1f1b, weights predicted by Adam's steps, once an update",
    "pipeoptim": "async_1f1b, forward with predicted weights",
    "pipemare": "async_1f1b, backward corrected for what changed since forward",
    "ppll": "local_learning: a loss for every stage",
    "graph_parallel": "one part of the vertices a process, which exchange rows: no schedule, exact",
    "sar": "graph_parallel for little memory: rows of others are fetched when read, and thrown away",
    "adaqp": "graph_parallel whose messages hold 4 bits of each number, rounded at random",
    "bns_gcn": "graph_parallel that exchanges a random tenth of the boundary rows in every step, rescaled",
    "pipegcn": "graph_parallel that reads rows and gradients of other processes one step late",
    "sancus": "graph_parallel that sends rows every 4 steps only and reads what it has until then",
}

RELATED = {
    "ampnet": "async_1f1b with weights.policy=live: stages update as gradients arrive",
    "wpipe": "not here: two groups of layers take turns, each with a version of its own (a grouped 2BW)",
    "pipefisher": "not here: fills the bubble of gpipe, one_f_one_b or chimera with K-FAC's work",
}


@dataclass(frozen=True)
class Row:
    """One family at given counts; numbers are None where it is not defined for them, and `note` says why."""

    system: str
    paper: str
    bubble: float | None
    peak_activations: float | None
    weight_copies: float | None
    messages: int | None
    exact: str
    note: str


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    options, rest = split_options(argv, CHOICES)
    faults = Faults("gnnpar systems")
    costs, rest = split_costs(rest, faults)
    for key in (argument.partition("=")[0] for argument in rest):
        faults.add(f"{key}: unknown{nearest(key, [*CHOICES, *COST_KEYS])}")
    stages = whole("stages", options["stages"] or "4", faults)
    batches = whole("micro_batches", options["micro_batches"] or "16", faults)
    faults.raise_if_any()
    found = rows(stages, batches, costs, overlap=options["overlap"])
    if options["format"] == "json":
        print_json([asdict(row) for row in found])
        return 0
    print_rows(
        f"{stages} ranks, {batches} micro-batches",
        ["system", "bubble", "peak activations", "weight copies", "messages", "exact on"],
        [
            (
                row.system,
                f"{row.bubble:.3f}",
                f"{row.peak_activations:g}",
                f"{row.weight_copies:g}",
                f"{row.messages}",
                row.exact,
            )
            for row in found
            if row.bubble is not None
        ],
        align="lrrrrl",
    )
    print()
    print_rows("What they are", (), [(row.system, row.note) for row in found], align="ll")
    return 0


def rows(stages: int, batches: int, costs: Costs, *, overlap: str = "serial") -> list[Row]:
    """Every family, then the presets that are shipped, then systems that are no order of their own."""
    found = [_family_row(family, stages, batches, costs, overlap) for family in FAMILIES.values()]
    shipped = sorted(path.stem for path in (resource_dir("configs") / "system").glob("*.yaml"))
    found += [
        Row(name, "", None, None, None, None, "", PRESETS.get(name, "a preset: see its configuration"))
        for name in shipped
        if name not in FAMILIES
    ]
    return found + [Row(name, "", None, None, None, None, "", note) for name, note in RELATED.items()]


def _family_row(family: Family, stages: int, batches: int, costs: Costs, overlap: str) -> Row:
    try:
        schedule = family(stages, batches)
    except InputError as error:
        note = "not defined here: " + "; ".join(error.faults)
        return Row(family.name, family.paper, None, None, None, None, "", note)
    schedule = with_reductions(schedule, costs.shared_ranks(schedule.num_ranks))
    blocking = family.matching != "asynchronous"
    order = lower(schedule, matching=family.matching, costs=costs) if blocking else schedule
    result = simulate(order, costs, overlap=overlap, rendezvous=blocking)
    share = schedule.num_ranks / schedule.num_stages
    held = sum(len(row) for row in schedule.placement)
    return Row(
        family.name,
        family.paper,
        result.bubble,
        max(result.peak_in_flight) * share,
        held / schedule.num_stages,
        result.messages,
        _exactness(schedule),
        family.summary,
    )


def _exactness(schedule: Schedule) -> str:
    """The micro-batches on which a step is exact, or faithful to the chunked semantics."""
    for gradient, text in (("accumulate", "clusters, chunks"), ("drop", "clusters, chunks γ=0")):
        try:
            check(schedule, batch="chunk", neighbours="history", gradient=gradient)
        except InputError:
            continue
        return text
    return "clusters"
