"""Models with branches equal the dense reference: one after the other on a chain, side by side as a graph."""

import pytest
from oracle.driver import Case, mismatches

P = 2
STEPS = 1 + 2 * P + 1


def case(stages=1, chunks=4, mode="latest", gamma=1.0, **keys):
    keys = {"steps": STEPS, "period": P, "num_layers": 8} | keys
    return Case(layer="branching", stages=stages, chunks=chunks, mode=mode, gamma=gamma, **keys)


CHAINS = [
    *(
        case(stages, mode=mode, gamma=gamma)
        for stages in (1, 3)
        for mode in ("latest", "snapshot", "drop")
        for gamma in (0.0, 1.0, 2.0)
    ),
    *(case(stages, recompute=True, mode=mode) for stages in (1, 2) for mode in ("latest", "snapshot")),
    case(4, split=(1, 3, 2, 2), gamma=2.0),
    case(4, split=(4, 1, 1, 2), mode="snapshot"),
    case(3, chunks=1),
    case(2, optimizer="adam", decay=(5e-4, 1e-2)),
    case(2, graph=(("sparse", True),)),
    case(2, schedule="looped_bfs", split=(2, 2, 2, 2)),
    case(2, schedule="one_f_one_b", gamma=0.0),
]
GRAPHS = [
    case(4, schedule="graphpipe", split=(3, 2, 2, 1), chunks=1),
    case(4, schedule="graphpipe", split=(3, 2, 2, 1), chunks=1, recompute=True, optimizer="adam"),
    *(
        case(4, schedule="graphpipe", split=(3, 2, 2, 1), gamma=0.0, mode=mode, recompute=recompute)
        for mode, recompute in (("latest", False), ("latest", True), ("snapshot", False), ("drop", True))
    ),
    case(4, schedule="graphpipe", gamma=0.0),
]


@pytest.mark.parametrize("case", CHAINS + GRAPHS, ids=str)
def test_equals_the_dense_reference(runs, case):
    assert mismatches(runs[case], runs.reference(case)) == []
