"""`Expr`: sums of products of named sizes, which is what counts of work and depth are made of.

Not a computer algebra: what is needed are sums, products, substitution, values and leading terms, and these
fit on a page, where a library would take a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["ONE", "ZERO", "Expr", "log2", "symbol"]

Number = int | float
Monomial = tuple[tuple[str, int], ...]
"""(symbol, exponent), by symbol; no exponent is 0. `log k` is a symbol of its own."""

_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_AT_MOST = {"T": "k", "d": "n"}
"""Symbol → one that is never smaller: a head has at least one column, a vertex at most n neighbours."""


@dataclass(frozen=True)
class Expr:
    """Σ of coefficient · Π symbol ^ exponent.

    Attributes:
        terms: coefficient of every monomial; none is 0.
    """

    terms: Mapping[Monomial, Number]

    @staticmethod
    def of(value: Expr | Number) -> Expr:
        """A number as an expression."""
        if isinstance(value, Expr):
            return value
        return Expr({(): value} if value else {})

    def __add__(self, other: Expr | Number) -> Expr:
        terms = dict(self.terms)
        for monomial, coefficient in Expr.of(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr({monomial: c for monomial, c in terms.items() if c})

    def __sub__(self, other: Expr | Number) -> Expr:
        return self + Expr.of(other) * -1

    def __mul__(self, other: Expr | Number) -> Expr:
        total: dict[Monomial, Number] = {}
        for a, x in self.terms.items():
            for b, y in Expr.of(other).terms.items():
                monomial = _times(a, b)
                total[monomial] = total.get(monomial, 0) + x * y
        return Expr({monomial: c for monomial, c in total.items() if c})

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Expr:
        """Of a monomial any whole exponent, of a sum those from 0."""
        if exponent < 0:
            ((monomial, coefficient),) = self.terms.items()
            return Expr({tuple((s, e * exponent) for s, e in monomial): coefficient**exponent})
        result = ONE
        for _ in range(exponent):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Expr, int, float)) and self.terms == Expr.of(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Those it is made of; of `log k` it is k."""
        return frozenset(s.removeprefix("log ") for monomial in self.terms for s, _ in monomial)

    def value(self, sizes: Mapping[str, Number]) -> float:
        """The number that it is for these sizes. Raises `KeyError` where one is missing."""
        return math.fsum(
            coefficient * math.prod(_size(s, sizes) ** exponent for s, exponent in monomial)
            for monomial, coefficient in self.terms.items()
        )

    def substitute(self, replacements: Mapping[str, Expr | Number]) -> Expr:
        """Symbols replaced, inside logarithms, too (there by a single product)."""
        total = ZERO
        for monomial, coefficient in self.terms.items():
            term = Expr.of(coefficient)
            for s, exponent in monomial:
                inner = s.removeprefix("log ")
                if inner not in replacements:
                    term = term * Expr({((s, exponent),): 1})
                else:
                    new = Expr.of(replacements[inner])
                    term = term * (new if inner == s else log2(new)) ** exponent
            total = total + term
        return total

    @property
    def leading(self) -> Expr:
        """The terms that no other one dominates, without their factors: what stands inside O(…)."""
        positive = [monomial for monomial, coefficient in self.terms.items() if coefficient > 0]
        kept = [a for a in positive if not any(a != b and _at_least(b, a) for b in positive)]
        return Expr(dict.fromkeys(kept, 1))

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda item: _order(item[0]))
        text = " + ".join(_term(monomial, coefficient) for monomial, coefficient in ordered)
        return text.replace("+ -", "- ") or "0"

    def __repr__(self) -> str:
        return f"Expr({self})"


ZERO, ONE = Expr({}), Expr({(): 1})


def symbol(name: str) -> Expr:
    """The expression that is one symbol."""
    return Expr({((name, 1),): 1})


def log2(argument: Expr | Number) -> Expr:
    """The logarithm of one product; of a sum that of its largest product, by degree (a constant is lost)."""
    terms = Expr.of(argument).terms
    if not terms:
        return ZERO
    monomial = max(terms, key=lambda one: (sum(e for _, e in one), one))
    total = Expr.of(math.log2(terms[monomial]))
    for s, exponent in monomial:
        total = total + Expr({((f"log {s}", 1),): exponent})
    return total


def _size(name: str, sizes: Mapping[str, Number]) -> float:
    if name.startswith("log "):
        return math.log2(max(sizes[name[4:]], 1))
    return float(sizes[name])


def _times(a: Monomial, b: Monomial) -> Monomial:
    exponents = dict(a)
    for s, exponent in b:
        exponents[s] = exponents.get(s, 0) + exponent
    return tuple(sorted((s, exponent) for s, exponent in exponents.items() if exponent))


def _at_least(b: Monomial, a: Monomial) -> bool:
    """Whether b ≥ a for all sizes from 1: whether b ÷ a has no exponent that pulls it below 1."""
    quotient = dict(_times(b, tuple((s, -exponent) for s, exponent in a)))
    for small, large in _AT_MOST.items():
        if (exponent := quotient.get(small, 0)) < 0:
            taken = min(-exponent, max(quotient.get(large, 0), 0))
            quotient[small] = exponent + taken
            quotient[large] = quotient.get(large, 0) - taken
    for s in [s for s in quotient if s.startswith("log ")]:  # log k < k
        if quotient[s] < 0:
            taken = min(-quotient[s], max(quotient.get(s[4:], 0), 0))
            quotient[s], quotient[s[4:]] = quotient[s] + taken, quotient.get(s[4:], 0) - taken
    return all(exponent >= 0 for exponent in quotient.values())


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    return -sum(exponent for s, exponent in monomial if not s.startswith("log ")), monomial


def _term(monomial: Monomial, coefficient: Number) -> str:
    # Sizes of the graph first, then widths, as one writes them: 2nk².
    ranked = sorted(monomial, key=lambda pair: ("Ltsbcnmzd".find(pair[0]) % 100, pair[0]))
    above = "".join(_power(s, e) for s, e in ranked if e > 0)
    below = "".join(_power(s, -e) for s, e in ranked if e < 0).strip()
    factor = f"{coefficient:.6g}"
    if abs(coefficient) == 1 and above:
        factor = "-" if coefficient < 0 else ""
    text = f"{factor}{above}".strip() if factor != "-" else f"-{above.strip()}"
    return text + (f"/({below})" if len(below) > 1 else f"/{below}" if below else "")


def _power(name: str, exponent: int) -> str:
    power = "" if exponent == 1 else str(exponent).translate(_SUPERSCRIPTS)
    if name.startswith("log "):
        return f" log{power} {name[4:]}"
    return f"{name}{power}" if len(name) == 1 else f" {name}{power} "
