"""Fixtures that all tests share: the warm pool of worker processes, and tiny graphs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `from support.pool import …` in any test

from support.graphs import tiny_graph
from support.pool import Pool


@pytest.fixture(scope="session")
def pool():
    """Up to four warm worker processes: `pool.run(function, num_ranks, *args, timeout_s=60)`."""
    pool = Pool(size=4)
    yield pool
    pool.close()


@pytest.fixture(params=["directed", "undirected"])
def graph(request):
    """A tiny float64 graph, directed and undirected."""
    return tiny_graph(request.param == "directed")


@pytest.fixture(params=["dense", "sparse"])
def featured_graph(request):
    """A tiny directed float64 graph with dense and with sparse features."""
    return tiny_graph(sparse=request.param == "sparse")


@pytest.fixture
def weighted_graph():
    """A tiny directed float64 graph with edge weights."""
    return tiny_graph(weighted=True)


@pytest.fixture
def multi_label_graph():
    """A tiny directed float64 graph with three labels a vertex, some entries missing."""
    return tiny_graph(multi_label=True)
