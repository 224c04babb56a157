"""Layers to pipeline stages: cut chains of costs into runs whose largest sum is least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from gnnpar.errors import Faults, InputError

__all__ = ["balance_branches", "balance_stages"]


def balance_stages(
    layer_costs: Sequence[float], num_stages: int, ways: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Layers per stage, each at least one, such that the slowest stage is as fast as can be.

    With `prefix[i]` the cost of the first i layers, the slowest of j stages over them costs
    `best[i][j] = min_k max(best[k][j-1], (prefix[i] - prefix[k]) / ways[j])`. Of equally good
    cuts the one with the longest last stages is taken.

    Args:
        layer_costs: seconds, or any other unit, per layer in order; not negative.
        num_stages: 1 to the number of layers.
        ways: how many processes share each stage, which takes so much less time; None: one each.

    Raises:
        InputError: more stages than layers, or costs that are negative or not finite.

    Cost: O(layers² · stages).
    """
    num_layers = len(layer_costs)
    faults = Faults("parallel.stages")
    if num_stages < 1:
        faults.add(f"must be at least 1, got {num_stages}")
    elif num_stages > num_layers:
        faults.add(
            f"{num_stages} stages, but only {num_layers} layers: each stage needs a layer; use fewer stages"
        )
    if bad := [i for i, cost in enumerate(layer_costs) if not math.isfinite(cost) or cost < 0]:
        faults.add(f"layer costs must be finite and not negative: layer {bad[0]} costs {layer_costs[bad[0]]}")
    faults.raise_if_any()
    prefix = [0.0, *accumulate(layer_costs)]
    shares = ways or [1] * num_stages
    best = [0.0] + [math.inf] * num_layers
    cuts: list[list[int]] = []
    for stage in range(1, num_stages + 1):
        row = [math.inf] * (num_layers + 1)
        cut = [0] * (num_layers + 1)
        for i in range(stage, num_layers + 1):
            row[i], cut[i] = min(
                (max(best[k], (prefix[i] - prefix[k]) / shares[stage - 1]), k) for k in range(stage - 1, i)
            )
        best = row
        cuts.append(cut)
    counts = []
    end = num_layers
    for cut in reversed(cuts):
        counts.append(end - cut[end])
        end = cut[end]
    return tuple(reversed(counts))


def balance_branches(
    costs: Sequence[Sequence[float]], num_stages: int, ways: Sequence[int] | None = None
) -> list[tuple[int, ...]]:
    """Layers per stage of every branch, each stage within one, such that the slowest is as fast as can be.

    `best[s]` holds, branch after branch, the best deal of the first s stages: each follows from the best
    deal of fewer stages to the branches before, and `balance_stages` of the branch over the rest of the s.

    Args:
        costs: of each branch, per layer in order; not negative.
        num_stages: from the number of branches to that of all layers.
        ways: as for `balance_stages`.

    Raises:
        InputError: fewer stages than branches, more than layers, or costs as for `balance_stages`.

    Cost: that of `balance_stages`, for one branch; times O(branches · stages²) for several.
    """
    num_layers = sum(map(len, costs))
    if not len(costs) <= num_stages <= num_layers:
        reason = f"{num_stages} stages for {len(costs)} branches of {num_layers} layers in all"
        raise InputError("parallel.stages", [f"{reason}: each branch needs a stage, each stage a layer"])
    shares = ways or [1] * num_stages
    best: dict[int, tuple[float, list[tuple[int, ...]]]] = {0: (0.0, [])}
    sizes = [len(branch) for branch in costs]
    for place, branch in enumerate(costs):
        # The branches that follow need a stage each, and can have no more stages than layers.
        fewest, most = num_stages - sum(sizes[place + 1 :]), num_stages - len(costs[place + 1 :])
        found: dict[int, tuple[float, list[tuple[int, ...]]]] = {}
        for start, (before, counts) in best.items():
            for stop in range(max(start + 1, fewest), min(start + len(branch), most) + 1):
                split = balance_stages(branch, stop - start, shares[start:stop])
                slowest = max(before, _slowest(branch, split, shares[start:stop]))
                if stop not in found or slowest < found[stop][0]:
                    found[stop] = slowest, [*counts, split]
        best = found
    return best[num_stages][1]


def _slowest(costs: Sequence[float], counts: Sequence[int], ways: Sequence[int]) -> float:
    bounds = [0, *accumulate(counts)]
    return max(sum(costs[start:stop]) / g for (start, stop), g in zip(pairwise(bounds), ways, strict=True))
