"""GPipe."""

from __future__ import annotations

from gnnpar.schedule.families._family import Family
from gnnpar.schedule.fill_drain import fill_drain
from gnnpar.schedule.schedule import Schedule

__all__ = ["FAMILY", "gpipe"]


def gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """Every forward, then every backward in reverse order; see ``fill_drain``.

    Three stages, four micro-batches, every action one unit of time::

        rank 0  F0 F1 F2 F3 .  .  .  .  B3 B2 B1 B0
        rank 1  .  F0 F1 F2 F3 .  .  B3 B2 B1 B0 .
        rank 2  .  .  F0 F1 F2 F3 B3 B2 B1 B0 .  .

    Paper: Huang et al., *GPipe* (NeurIPS 2019), §2.2.
    """
    return fill_drain(num_stages, num_micro_batches)


FAMILY = Family(
    gpipe,
    paper="Huang et al., NeurIPS 2019",
    summary="all forwards, then all backwards; the order in which chunks accumulate gradients",
)
