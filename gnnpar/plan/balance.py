"""Layers to pipeline stages: cut a chain of costs into runs whose largest sum is least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from gnnpar.errors import Faults

__all__ = ["balance_stages"]


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
