"""Graphs that need no download: `digits` and `karate`."""

from __future__ import annotations

import numpy as np
import torch

from gnnpar.data.raw import RawGraph
from gnnpar.graph.features import SparseRows

__all__ = ["read_digits", "read_karate"]

# W. W. Zachary, "An information flow model for conflict and fission in small groups",
# Journal of Anthropological Research 33 (1977) 452-473, figure 3: members who met outside the club.
# Numbered from 0 (the instructor) to 33 (the administrator); entry i lists the later friends of member i.
_FRIENDS: dict[int, str] = {
    0: "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31",
    1: "2 3 7 13 17 19 21 30",
    2: "3 7 8 9 13 27 28 32",
    3: "7 12 13",
    4: "6 10",
    5: "6 10 16",
    6: "16",
    8: "30 32 33",
    9: "33",
    13: "33",
    14: "32 33",
    15: "32 33",
    18: "32 33",
    19: "33",
    20: "32 33",
    22: "32 33",
    23: "25 27 29 32 33",
    24: "25 27 31",
    25: "31",
    26: "29 33",
    27: "33",
    28: "31 33",
    29: "32 33",
    30: "32 33",
    31: "32 33",
    32: "33",
}
_INSTRUCTORS_CLUB = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21)


def read_karate() -> RawGraph:
    """Zachary's karate club: 34 members, 78 friendships, label = the club joined after the split.

    Features are the identity (one column a member).
    """
    pairs = [(i, int(j)) for i, friends in _FRIENDS.items() for j in friends.split()]
    y = torch.ones(34, dtype=torch.int64)
    y[list(_INSTRUCTORS_CLUB)] = 0
    x = SparseRows(torch.arange(35), torch.arange(34, dtype=torch.int32), torch.ones(34), 34)
    return RawGraph("karate", 34, torch.tensor(pairs).T.contiguous(), y, x, inverse_edges=True)


def read_digits(num_neighbors: int = 10) -> RawGraph:
    """scikit-learn's 1797 handwritten digits (8 x 8 pixels in [0, 1]), joined to their nearest others.

    Edges i → j and j → i wherever j is among the `num_neighbors` nearest of i (Euclidean; ties: lower id).
    """
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    # Squared distances of integers below 2^24 are exact in float64, so ties are true ties on every machine.
    norm = (pixels**2).sum(1)
    distance = norm[:, None] + norm[None] - 2 * pixels @ pixels.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :num_neighbors]
    row = np.repeat(np.arange(len(y)), num_neighbors)
    edges = torch.from_numpy(np.stack([nearest.reshape(-1), row]))
    x = torch.from_numpy((pixels / 16).astype(np.float32))
    return RawGraph("digits", len(y), edges, torch.from_numpy(y.astype(np.int64)), x, inverse_edges=True)
