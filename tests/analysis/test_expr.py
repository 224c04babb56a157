"""Sums of products of named sizes."""

import math

import pytest

from gnnpar.analysis import Expr, log2, symbol

n, m, k, T, d = (symbol(name) for name in "nmkTd")


def test_sums_and_products_are_those_of_numbers():
    sizes = {"n": 7, "m": 30, "k": 4, "T": 2, "d": 8}
    expr = (n * k + m * 3 - 2) * (k - n) + log2(d * 4) ** 2
    assert expr.value(sizes) == (7 * 4 + 30 * 3 - 2) * (4 - 7) + 5**2
    assert expr.symbols == {"n", "k", "m", "d"}
    assert n * k + m - m == k * n
    assert not (n - n) and n - n == 0
    with pytest.raises(KeyError):
        expr.value({"n": 1})


def test_a_logarithm_of_a_product_is_a_sum():
    assert log2(n * k * T**-1 * 8) == log2(n) + log2(k) - log2(T) + 3
    assert log2(n).value({"n": 1797}) == math.log2(1797)
    assert log2(0) == log2(1) == 0


def test_symbols_are_replaced_everywhere():
    expr = n**2 * m * n**-1 + log2(n * m)
    assert expr.substitute({"n": k * 2}) == k * m * 2 + log2(k) + log2(m) + 1
    assert expr.substitute({"n": 16, "m": k}) == k * 16 + log2(k) + 4


@pytest.mark.parametrize(
    ("expr", "leading"),
    [
        (n * k**2 * 2 + m * k * 3 + n * k * 9 + 4, n * k**2 + m * k),
        (n * k**2 + n * k * 1000, n * k**2),
        (m * T * 13 + m * k, m * k),  # a head is at least one column wide
        (log2(k) * 4 + log2(d) + 7, log2(k) + log2(d)),
        (k + log2(k) * 99, k),
        (n * n * k + n * d, n**2 * k),
        (n - m * 2, n),
    ],
)
def test_leading_terms(expr, leading):
    assert expr.leading == leading


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (m * k + n * k**2 * 2, "2nk² + mk"),
        (log2(d) * 3 - log2(T) + 16, "16 + 3 log d - log T"),
        (symbol("L") * log2(k), "L log k"),
        (m * n**-2 * symbol("b") ** -1, "m/(bn²)"),
        (symbol("k2") * n, "n k2"),
        (Expr({}), "0"),
        (Expr.of(1.5), "1.5"),
    ],
)
def test_text(expr, text):
    assert sorted(str(expr).replace("- ", "+ -").split(" + ")) == sorted(
        text.replace("- ", "+ -").split(" + ")
    )
