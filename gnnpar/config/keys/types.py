"""Numbers that keys hold, by what they may be."""

from typing import Annotated

from gnnpar.config.constraints import Above, AtLeast, Between

__all__ = ["Fraction", "NaturalInt", "NonNegative", "Positive", "PositiveInt", "Probability", "Seed"]

PositiveInt = Annotated[int, AtLeast(1)]
NaturalInt = Annotated[int, AtLeast(0)]
Seed = Annotated[int, Between(0, 2**63 - 1)]
NonNegative = Annotated[float, AtLeast(0)]
Positive = Annotated[float, Above(0)]
Fraction = Annotated[float, Between(0, 1)]
Probability = Annotated[float, Between(0, 1, open_end=True)]
