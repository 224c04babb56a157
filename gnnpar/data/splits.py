"""Which vertices train, validate and test: the source's own splits, or a seeded one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnpar.errors import InputError

__all__ = ["MASKS", "choose_split", "random_split"]

MASKS = ("train_mask", "val_mask", "test_mask")
_SHARES = (0.6, 0.8)


def choose_split(masks: dict[str, Tensor], y: Tensor, split: int, name: str) -> dict[str, Tensor]:
    """Masks `[N]` of split number `split`: of the source (`[S, N]`) where it has any, else `random_split`.

    Vertices without a label are left out.

    Raises:
        InputError: the source has fewer splits.
    """
    if not masks:
        return random_split(y, split)
    num_splits = masks["train_mask"].shape[0]
    if not 0 <= split < num_splits:
        raise InputError(
            f"dataset {name}", [f"dataset.split={split}: must lie in 0..{num_splits - 1}, its own splits"]
        )
    labelled = _labelled(y)
    return {key: mask[split] & labelled for key, mask in masks.items()}


def random_split(y: Tensor, seed: int) -> dict[str, Tensor]:
    """Seeded 60/20/20 masks over the labelled vertices; each class of a single-label set is divided so.

    Depends on `y` and `seed` only, not on the platform's thread count or global random state.
    """
    num_nodes = y.shape[0]
    order = np.random.default_rng([seed, 0x5917]).permutation(num_nodes)
    order = order[_labelled(y).numpy()[order]]
    if y.dim() == 1:
        order = order[np.argsort(y.numpy()[order], kind="stable")]
        size = np.bincount(y.numpy()[order])
    else:
        size = np.array([order.size])
    begin = np.repeat(np.cumsum(size) - size, size)
    share = (np.arange(order.size) - begin + 0.5) / np.repeat(size, size)
    part = np.full(num_nodes, -1)
    part[order] = np.digitize(share, _SHARES)
    return {key: torch.from_numpy(part == i) for i, key in enumerate(MASKS)}


def _labelled(y: Tensor) -> Tensor:
    return y >= 0 if y.dim() == 1 else ~y.isnan().all(1)
