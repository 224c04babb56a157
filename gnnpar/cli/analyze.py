"""`gnnpar analyze`: what a run will cost, and what it is, before anything runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gnnpar.cli.costs import whole
from gnnpar.cli.options import FORMAT, split_options, wants_help
from gnnpar.cli.table import bytes_text, print_json, print_pairs, print_rows
from gnnpar.config import compose, group_choices
from gnnpar.errors import Faults, InputError

if TYPE_CHECKING:
    from gnnpar.analysis import Analysis, Expr, ModelCost, Taxonomy

__all__ = ["main"]

USAGE = """usage: gnnpar analyze [GROUP=NAME …] [KEY=VALUE …] [seeds=1024] [fanout=10] [format=table|json]
       gnnpar analyze presets=true [format=table|json]

Work, depth and parallelism of every layer and phase, as expressions and as numbers, and of an epoch under
every training scheme; the class of each layer; axes of parallelism and what is asynchronous; bytes by link
and memory by kind. Starts no process of a run. Takes the keys of `gnnpar train`; the graph is read and cut
(cached).

  seeds, fanout   of the sampled schemes that the run is compared with
  presets=true    the row of every preset in the comparison of systems, instead of one run

Symbols: n vertices, m edges, d most neighbours of a vertex (itself counted), k width of the layers, T heads,
F features (z stored, where sparse), C classes, t labelled training vertices, L graph layers, b seeds, c
fan-out.
Work counts a multiply-add as two; depth is the longest chain, with as many processors as one likes.

  gnnpar analyze model=gat dataset=ogbn-arxiv system=gnnpipe
  gnnpar analyze system=gnnpipe_hybrid parallel.stages=4 format=json
"""

OPTIONS = {**FORMAT, "presets": ("false", "true"), "seeds": (), "fanout": ()}
_PHASE_NAMES = {"scatter": "scatter", "edge": "ψ, edges", "reduce": "⊕, reduce", "vertex": "φ, vertices"}
_MOST_LINKS = 12


def main(argv: list[str]) -> int:
    """Run the subcommand; the exit code. Raises `InputError` for the caller to print."""
    if wants_help(argv):
        print(USAGE, end="")
        return 0
    options, overrides = split_options(argv, OPTIONS)
    as_json = options["format"] == "json"
    if options["presets"] == "true":
        if overrides:
            raise InputError("gnnpar analyze", [f"{overrides[0]}: presets=true takes no other keys"])
        return _presets(as_json)
    faults = Faults("gnnpar analyze")
    seeds = whole("seeds", options["seeds"] or "1024", faults)
    fanout = whole("fanout", options["fanout"] or "10", faults)
    faults.raise_if_any()
    config = compose(overrides)

    from gnnpar.analysis import analyze

    found = analyze(config, seeds=seeds, fanout=fanout)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found)
    return 0


def _presets(as_json: bool) -> int:
    from gnnpar.analysis import analyze_presets

    rows = analyze_presets(group_choices()["system"])
    if as_json:
        print_json([row.to_json() for row in rows])
        return 0
    columns = ("preset", "processes", "batch", "partition", "mini-batch", "feature", "structure", "macro")
    print_rows(
        "Axes of parallelism, and what is asynchronous",
        (*columns, "micro", "ANN", "asynchronous", "weights", "left out, changed"),
        [_preset_row(row) for row in rows],
        align="lrlrlrrllllrl",
    )
    return 0


def _preset_row(row: Taxonomy) -> tuple[str, ...]:
    def number(count: int) -> str:
        return str(count) if count > 1 else "–"

    batches = f"{row.mini_batch} {row.micro_batches}" if row.mini_batch else "–"
    return (
        row.system,
        str(row.processes),
        row.batch,
        number(row.partition),
        batches,
        number(row.feature),
        number(row.structure),
        f"{row.macro}, {row.order}" if row.macro > 1 else "–",
        "yes" if row.micro else "–",
        "yes" if row.ann_operator or row.ann_pipeline else "–",
        "; ".join(f"{one.what} {_age(one.bound)}" for one in row.stale) or "–",
        f"{row.weight_copies}×",
        "; ".join(row.remarks) or "–",
    )


def _age(bound: int | None) -> str:
    return "unbounded" if bound is None else f"≤ {bound}"


def _show(found: Analysis) -> None:
    cost = found.cost
    shown = ("n", "m", "d", "k", "T", "F", "z", "C", "t", "e", "L")
    sizes = [f"{s} {cost.values[s]:,.0f}" for s in shown if cost.values.get(s)]
    stages = f"stages of {', '.join(map(str, found.layers_per_stage))} layers; "
    print_rows(
        f"{found.title} ({stages if len(found.layers_per_stage) > 1 else ''}{', '.join(sizes)})",
        ("layers", "kind", "class", "order in Â", "work forward", "back", "depth forward", "back"),
        _layer_rows(cost),
        align="llllllll",
    )
    print()
    print_rows(
        "Work and depth by phase, of all layers",
        ("phase", "work forward", "", "work back", "", "depth forward", "", "depth back", ""),
        _phase_rows(cost),
        align="llrlrlrlr",
    )
    print()
    print_rows("Work by kernel", ("kernel", "forward", "", "back", ""), _kernel_rows(cost), align="llrlr")
    print()
    print_rows(
        "An epoch under every scheme (O: leading terms; depth and W/D of one step; ← this run)",
        ("", "scheme", "work", "", "depth", "", "steps", "W/D", "with"),
        [
            (
                "←" if one.kind == found.scheme else "",
                one.title,
                f"O({one.work.leading})",
                _big(one.work_value),
                f"O({one.depth.leading})",
                f"{one.depth_value:,.0f}",
                f"{one.steps_value:,.0f}",
                _big(one.parallelism),
                one.note,
            )
            for one in found.schemes
        ],
        align="lllrlrrrl",
    )
    print()
    print_pairs("Taxonomy (Besta and Hoefler)", found.taxonomy.pairs())
    _show_traffic(found)
    _show_memory(found)
    for note in found.notes:
        print(f"note: {note}")


def _layer_rows(cost: ModelCost) -> Iterator[tuple[str, ...]]:
    """A row for every run of layers that are alike."""
    entries = list(zip(cost.layers, cost.orders(), strict=True))
    for _, group in groupby(
        entries, key=lambda pair: (pair[0].kind, pair[0].forward, pair[0].backward, pair[1])
    ):
        run = list(group)
        layer, order = run[0]
        names = layer.name if len(run) == 1 else f"{layer.name} to {run[-1][0].name.rpartition('.')[2]}"
        yield (
            names,
            layer.kind,
            "row-wise" if layer.role is None else layer.role.name,
            order or "–",
            str(layer.forward.total_work),
            str(layer.backward.total_work),
            str(layer.forward.total_depth),
            str(layer.backward.total_depth),
        )


def _phase_rows(cost: ModelCost) -> Iterator[tuple[str, ...]]:
    from gnnpar.analysis.counter import PHASES
    from gnnpar.analysis.expr import ZERO

    for phase in PHASES:
        work = [cost.sum(one.by_phase(phase) for one in way) for way in _ways(cost)]
        depth = [cost.sum(one.depth.get(phase, ZERO) for one in way) for way in _ways(cost)]
        yield _PHASE_NAMES[phase], *_told(cost, [*work, *depth])
    total = [cost.sum(one.total_work for one in way) for way in _ways(cost)]
    chains = [cost.sum(one.total_depth for one in way) for way in _ways(cost)]
    yield "all", *_told(cost, [*total, *chains])


def _kernel_rows(cost: ModelCost) -> Iterator[tuple[str, ...]]:
    from gnnpar.analysis.counter import KERNELS

    for kernel in KERNELS:
        work = [cost.sum(one.by_kernel(kernel) for one in way) for way in _ways(cost)]
        if any(work):
            yield kernel, *_told(cost, work)


def _ways(cost: ModelCost) -> tuple[list, list]:  # type: ignore[type-arg]
    return [layer.forward for layer in cost.layers], [layer.backward for layer in cost.layers]


def _told(cost: ModelCost, parts: Sequence[Expr]) -> list[str]:
    """Every expression, then its value."""
    return [text for part in parts for text in (str(part), _big(part.value(cost.values)))]


def _big(number: float) -> str:
    """`1,234`, `5.67M`, `8.9G`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def _show_traffic(found: Analysis) -> None:
    by_kind = found.bytes_by_kind
    if by_kind is None or found.traffic is None or not found.traffic:
        return
    print()
    links: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for flow in found.traffic:
        links[flow.source, flow.target][flow.kind] += flow.bytes
    kinds = [kind for kind, count in by_kind.items() if count]
    busiest = sorted(links, key=lambda link: -links[link].total())[:_MOST_LINKS]
    rows = [
        (f"{a} → {b}", *(bytes_text(links[a, b][kind]) for kind in kinds), bytes_text(links[a, b].total()))
        for a, b in sorted(busiest)
    ]
    if len(links) > len(busiest):
        rows.append((f"… {len(links) - len(busiest)} more", *("" for _ in kinds), ""))
    rows.append(("all", *(bytes_text(by_kind[kind]) for kind in kinds), bytes_text(sum(by_kind.values()))))
    print_rows("Bytes of an epoch by link", ("link", *kinds, "sum"), rows, align="l" + "r" * (len(kinds) + 1))


def _show_memory(found: Analysis) -> None:
    from gnnpar.analysis.memory import ESTIMATED, KINDS

    if found.memory is None:
        return
    print()
    alike: list[tuple[list[int], dict[str, int]]] = []
    for process, held in enumerate(found.memory):
        if alike and alike[-1][1] == held:
            alike[-1][0].append(process)
        else:
            alike.append(([process], held))
    columns = [f"process {p[0]}" + (f" to {p[-1]}" if len(p) > 1 else "") for p, _ in alike]
    rows = [
        (f"{kind} (about)" if kind in ESTIMATED else kind, *(bytes_text(held[kind]) for _, held in alike))
        for kind in KINDS
    ]
    rows.append(("sum", *(bytes_text(sum(held.values())) for _, held in alike)))
    print_rows("Memory, libraries not counted", ("", *columns), rows, align="l" + "r" * len(alike))
