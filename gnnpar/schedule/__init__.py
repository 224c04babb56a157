"""Schedules as data: built by families, checked, simulated, drawn and lowered. Pure Python, no torch."""

from gnnpar.schedule.action import Action, Compound, Item, Kind, parse_item
from gnnpar.schedule.check import check
from gnnpar.schedule.costs import Costs
from gnnpar.schedule.dependencies import INDEPENDENT, Dependencies, dependencies_for, owners, predecessors
from gnnpar.schedule.fill_drain import fill_drain
from gnnpar.schedule.lower import lower
from gnnpar.schedule.program import Program
from gnnpar.schedule.reductions import with_reductions
from gnnpar.schedule.schedule import Schedule
from gnnpar.schedule.simulate import SimulationResult, Timed, simulate
from gnnpar.schedule.updates import updates_before, updates_until_return
from gnnpar.schedule.whole import whole

__all__ = [
    "INDEPENDENT",
    "Action",
    "Compound",
    "Costs",
    "Dependencies",
    "Item",
    "Kind",
    "Program",
    "Schedule",
    "SimulationResult",
    "Timed",
    "check",
    "dependencies_for",
    "fill_drain",
    "lower",
    "owners",
    "parse_item",
    "predecessors",
    "simulate",
    "updates_before",
    "updates_until_return",
    "whole",
    "with_reductions",
]
