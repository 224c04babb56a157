"""`analyze`: what a run will cost, and what it is, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import torch

from gnnpar.analysis.counter import KERNELS, PHASES
from gnnpar.analysis.expr import Expr
from gnnpar.analysis.memory import process_memory
from gnnpar.analysis.schemes import Scheme, schemes
from gnnpar.analysis.taxonomy import Taxonomy, flat_values, taxonomy
from gnnpar.analysis.totals import ModelCost, cost_of_model
from gnnpar.analysis.traffic import Flow, epoch_traffic
from gnnpar.config import RunConfig
from gnnpar.dist import Mesh
from gnnpar.errors import InputError
from gnnpar.graph import Graph
from gnnpar.history import HistoryPolicy
from gnnpar.model import Model
from gnnpar.plan import balance_branches
from gnnpar.runtime import needs_two_copies
from gnnpar.schedule import Schedule
from gnnpar.train.feed import ChunkFeed
from gnnpar.train.job import make_model
from gnnpar.train.order import build_schedule, runs_by_branch
from gnnpar.train.run import prepare

__all__ = ["Analysis", "analyze", "analyze_presets", "taxonomy_of"]


@dataclass(frozen=True)
class Analysis:
    """What is known of a run before it starts.

    Attributes:
        cost: work and depth of the model on the graph that training sees.
        schemes: an epoch under every training scheme; `scheme`: the kind of the run's own.
        taxonomy: the run's row in the comparison of systems.
        layers_per_stage: graph layers of each stage; `split_is_given` where the configuration says them or
            there is no choice. Else layers are balanced by counted work, and training by measured seconds.
        traffic: what the last epoch sends, by kind and link; None where no closed form is known, for the
            reasons in `notes`.
        memory: bytes by kind, of every process; None likewise.
    """

    title: str
    cost: ModelCost
    schemes: tuple[Scheme, ...]
    scheme: str
    taxonomy: Taxonomy
    layers_per_stage: tuple[int, ...]
    split_is_given: bool
    traffic: tuple[Flow, ...] | None
    memory: tuple[dict[str, int], ...] | None
    notes: tuple[str, ...]

    @property
    def bytes_by_kind(self) -> dict[str, int] | None:
        """As `summary.json` reports them, without kind `control`."""
        if self.traffic is None:
            return None
        total = dict.fromkeys(("stage", "halo", "weight"), 0)
        for flow in self.traffic:
            total[flow.kind] = total.get(flow.kind, 0) + flow.bytes
        return total

    def to_json(self) -> dict[str, Any]:
        """Plain values; every expression as text, as its leading terms, and as a number."""
        cost = self.cost

        def told(expr: Expr, values: dict[str, float] | None = None) -> dict[str, Any]:
            known = values or dict(cost.values)
            return {"expression": str(expr), "leading": str(expr.leading), "value": expr.value(known)}

        layers = []
        for layer, order in zip(cost.layers, cost.orders(), strict=True):
            role = None if layer.role is None else {**asdict(layer.role), "order": order}
            row: dict[str, Any] = {"name": layer.name, "kind": layer.kind, "class": role}
            row["linear"] = layer.linear
            for way, one in (("forward", layer.forward), ("backward", layer.backward)):
                row[way] = {
                    "work": told(one.total_work),
                    "depth": told(one.total_depth),
                    "work_by_phase": {phase: told(one.by_phase(phase)) for phase in PHASES},
                    "work_by_kernel": {kernel: told(one.by_kernel(kernel)) for kernel in KERNELS},
                    "depth_by_phase": {phase: told(depth) for phase, depth in one.depth.items()},
                }
            row["backward"]["depth_of_weights"] = told(layer.backward.weights)
            layers.append(row)
        return {
            "run": self.title,
            "sizes": dict(cost.values),
            "layers": layers,
            "forward_work": told(cost.forward),
            "backward_work": told(cost.backward),
            "work": told(cost.work),
            "depth": told(cost.depth),
            "parallelism": cost.parallelism,
            "schemes": [
                {
                    "kind": one.kind,
                    "title": one.title,
                    "own": one.kind == self.scheme,
                    "work": {"leading": str(one.work.leading), "value": one.work_value},
                    "depth": {"leading": str(one.depth.leading), "value": one.depth_value},
                    "steps": {"expression": str(one.steps), "value": one.steps_value},
                    "parallelism": one.parallelism,
                    "note": one.note,
                }
                for one in self.schemes
            ],
            "taxonomy": self.taxonomy.to_json(),
            "layers_per_stage": list(self.layers_per_stage),
            "split_is_given": self.split_is_given,
            "bytes_per_epoch": self.bytes_by_kind,
            "links": None if self.traffic is None else [asdict(flow) for flow in self.traffic],
            "memory": None if self.memory is None else list(self.memory),
            "notes": list(self.notes),
        }


def analyze(
    config: RunConfig,
    graph: Graph | None = None,
    model: Model | None = None,
    *,
    seeds: int = 1024,
    fanout: int = 10,
) -> Analysis:
    """Analyse a run without starting a process.

    Args:
        graph: where not given, the configuration's dataset.
        model: where not given, the configuration's.
        seeds, fanout: of the sampled schemes that the run is compared with.

    Raises:
        InputError: whatever would keep the run from starting.

    Cost: one pass of at most three layers over some hundred edges, and the partition (cached).
    """
    if config.batch.sampled:
        why = f"batch.kind={config.batch.kind} draws mini-batches, whose sizes are known when they are drawn"
        raise InputError("analysis", [f"{why}; analyse batch.kind=chunks or clusters"])
    if graph is None:
        from gnnpar.data import load

        graph = load(config.dataset)
    values, notes = flat_values(config), []
    chunked = prepare(config, graph, model)
    network = model if model is not None else make_model(config, graph)
    network.to(getattr(torch, config.dtype))
    mesh, policy = Mesh.of(config), HistoryPolicy.of(config)
    copies = 2 if needs_two_copies(network, policy, config.memory.recompute) else 1
    draft = ChunkFeed(config, mesh, build_schedule(config), chunked, copies, network.chunk_dependent)
    trained = draft.trained.graph
    what = config.model if model is None else network
    cost = cost_of_model(what, trained)
    split, given, schedule = _deal(network, config, mesh, cost)
    feed = ChunkFeed(config, mesh, schedule, chunked, copies, network.chunk_dependent)
    if not given:
        notes.append("stages are balanced by counted work; training measures layers and may cut elsewhere")
    reasons = _uncounted(values)
    notes += reasons
    traffic = memory = None
    if not reasons:
        traffic = tuple(epoch_traffic(network, split, feed, config.train.num_epochs - 1))
        memory = tuple(process_memory(network, split, feed, cost.layers, dict(cost.values)))
    if any(layer.role is not None and layer.role.name == "unknown" for layer in cost.layers):
        notes.append("a layer sums outside torch: its work on edges is not counted, its class is unknown")
    kind = config.batch.kind
    own = "full" if kind in ("chunks", "clusters") and config.batch.num_chunks == 1 else kind
    inner = chunked.isolated.graph.num_edges if chunked.num_chunks > 1 else None
    full = cost if trained is chunked.graph else cost_of_model(what, chunked.graph)
    steps = config.batch.steps_per_epoch
    b = min(seeds, graph.num_nodes)
    compared = schemes(full, seeds=b, fanout=fanout, inner_edges=inner, steps=steps)
    return Analysis(
        title=f"{config.system}: {config.model.name}, {network.num_layers} layers, on {graph.name}",
        cost=cost,
        schemes=tuple(compared),
        scheme=own,
        taxonomy=taxonomy(values, schedule),
        layers_per_stage=_graph_layers(network, split),
        split_is_given=given,
        traffic=traffic,
        memory=memory,
        notes=tuple(notes),
    )


def analyze_presets(names: Sequence[str]) -> list[Taxonomy]:
    """The rows of presets by name."""
    from gnnpar.config import compose

    return [taxonomy_of(compose([f"system={name}"])) for name in names]


def taxonomy_of(config: RunConfig) -> Taxonomy:
    """The row of a configuration."""
    return taxonomy(flat_values(config), build_schedule(config))


def _deal(
    model: Model, config: RunConfig, mesh: Mesh, cost: ModelCost
) -> tuple[tuple[int, ...], bool, Schedule]:
    """Entries of `model.all_layers()` of every stage, whether there was no choice, and the schedule."""
    by_branch, draft = runs_by_branch(config), build_schedule(config)
    units, given = model.units(), config.parallel.layers_per_stage
    num_stages = draft.num_stages
    sure = given is not None or num_stages in (1, len(units))
    if given is not None:
        counts = list(given)
    elif sure:
        counts = [len(units)] if num_stages == 1 else [1] * num_stages
    else:
        ways = [min(mesh.ways[column] for column in held) for held in zip(*draft.placement, strict=True)]
        work = [layer.work.value(cost.values) for layer in cost.layers]
        branches = list(model.branches_in_order().values()) if by_branch else [units]
        merged = [[sum(work[i] for i in unit) for unit in branch] for branch in branches]
        counts = list(chain.from_iterable(balance_branches(merged, num_stages, ways)))
    split = tuple(sum(map(len, units[a:b])) for a, b in pairwise([0, *accumulate(counts)]))
    return split, sure, build_schedule(config, model.stage_edges(split) if by_branch else None)


def _graph_layers(model: Model, split: Sequence[int]) -> tuple[int, ...]:
    """Graph layers of each stage, as `parallel.layers_per_stage` takes them."""
    starts = [unit.start for unit in model.units()]
    return tuple(sum(a <= start < b for start in starts) for a, b in pairwise([0, *accumulate(split)]))


def _uncounted(values: dict[str, Any]) -> list[str]:
    """Why bytes and memory have no closed form here."""
    reasons = {
        "batch.kind": ("chunks", "clusters"),
        "parallel.split": ("vertices",),
        "memory.sequential": (False,),
        "parallel.replicas": (1,),
        "halo.mode": ("exact",),
        "weights.policy": ("flush",),
    }
    return [
        f"bytes and memory are not counted for {key}={values[key]}"
        for key, known in reasons.items()
        if key in values and values[key] not in known
    ]
