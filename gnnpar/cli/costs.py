"""What the commands about schedules share: reading `costs.…`, lists and counts from the command line."""

from __future__ import annotations

from dataclasses import fields

from gnnpar.config.suggest import nearest
from gnnpar.errors import Faults
from gnnpar.schedule import Costs

__all__ = ["COSTS_USAGE", "COST_KEYS", "split_costs", "whole", "words"]

COSTS_USAGE = """\
  costs.F costs.I costs.W costs.B   duration of a forward, of a backward's halves, of a whole one (I + W)
  costs.message costs.message_back  transfer of a micro-batch's message, forward and backward
  costs.latency costs.reduce costs.step costs.recompute=true costs.activation
  costs.micro_batches=[1,2,…]       relative sizes; other costs may be a list, too: one number a stage
  costs.ways=[2,1,…]                processes that share each rank and split every micro-batch: 1/2 the time
"""

KEYS = tuple(field.name for field in fields(Costs) if field.name != "links")
COST_KEYS = tuple(f"costs.{name}" for name in KEYS)


def split_costs(argv: list[str], faults: Faults) -> tuple[Costs, list[str]]:
    """The costs among the arguments, and the rest; what cannot be read is added to the faults."""
    values: dict[str, object] = {}
    rest = []
    for argument in argv:
        key, _, text = argument.partition("=")
        name = key.removeprefix("costs.")
        if name == key:
            rest.append(argument)
        elif name not in KEYS:
            faults.add(f"{key}: unknown; the costs are {', '.join(KEYS)}{nearest(name, KEYS)}")
        elif name == "recompute":
            if text not in ("true", "false"):
                faults.add(f"{key}: must be true or false, got {text!r}")
            values[name] = text == "true"
        else:
            try:
                numbers = [float(word) for word in words(text)]
            except ValueError:
                numbers = []
            if not numbers:
                faults.add(f"{key}: must be a number, or numbers like [1,2,3], got {text!r}")
                continue
            several = text.startswith("[") or len(numbers) > 1
            values[name] = numbers if several else numbers[0]
            if name == "latency" and several:
                faults.add(f"{key}: must be one number, got {text!r}")
            if name == "micro_batches":
                values[name] = numbers
    return (Costs() if faults else Costs(**values)), rest  # type: ignore[arg-type]


def words(text: str) -> list[str]:
    """`[a,b]` or `a,b` as its words."""
    return [word.strip() for word in text.removeprefix("[").removesuffix("]").split(",") if word.strip()]


def whole(key: str, text: str, faults: Faults) -> int:
    """A positive whole number; 1 with a fault where it is none."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    faults.add(f"{key}: must be a positive whole number, got {text!r}")
    return 1
