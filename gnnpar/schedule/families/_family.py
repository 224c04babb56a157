"""Family: what the registry knows of a schedule family beside its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from gnnpar.errors import Faults
from gnnpar.schedule.schedule import Schedule

__all__ = ["Family"]


@dataclass(frozen=True)
class Family:
    """A schedule family.

    Args:
        build: ``build(num_stages, num_micro_batches, **options)``; its docstring holds timetable and paper.
            num_stages counts the pipeline's ranks; families that cut a rank's layers further say so.
        paper: where it was published.
        summary: one line for the table of systems.
        matching: how its paper sends messages: asynchronous, or paired (blocking, both ways at once).
        example: stages and micro-batches of the timetable in the docstring and of the golden text.
    """

    build: Callable[..., Schedule]
    paper: str
    summary: str
    matching: str = "asynchronous"
    example: tuple[int, int] = (3, 4)

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def options(self) -> dict[str, object]:
        """Names and defaults of the keyword options."""
        parameters = list(inspect.signature(self.build).parameters.values())[2:]
        return {parameter.name: parameter.default for parameter in parameters}

    def takes_several(self, option: str) -> bool:
        """Whether an option may be a list, one entry a stage."""
        return "Sequence" in str(inspect.signature(self.build).parameters[option].annotation)

    def __call__(self, num_stages: int, num_micro_batches: int, **options: object) -> Schedule:
        faults = Faults(f"schedule {self.name}")
        for key, value in (("stages", num_stages), ("micro_batches", num_micro_batches)):
            if value < 1:
                faults.add(f"{key}: must be at least 1, got {value}")
        for key in options:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                faults.add(f"{key}: not an option of {self.name}; known: {known}")
        faults.raise_if_any()
        return self.build(num_stages, num_micro_batches, **options)
