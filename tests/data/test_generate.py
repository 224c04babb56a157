import numpy as np
import pytest
import torch

from gnnpar import data
from gnnpar.config.schema import DatasetConfig
from gnnpar.data import PlantedPartition, generate
from gnnpar.errors import InputError


def graph_of(**changes):
    return data.load(DatasetConfig(name="generated", kind="generated", **changes))


def test_statistics():
    graph = graph_of(num_nodes=20_000, mean_degree=12.0, homophily=0.7, exponent=2.5, num_classes=6)
    assert graph.is_symmetric and graph.num_edges == 240_000
    assert not bool((graph.indices == graph.destinations).any())
    same = graph.y[graph.indices.long()] == graph.y[graph.destinations]
    assert abs(float(same.double().mean()) - 0.7) < 0.02
    share = torch.bincount(graph.y, minlength=6) / 20_000
    assert float((share - 1 / 6).abs().max()) < 0.02
    degree = graph.in_degree.double().numpy()
    assert degree.max() > 15 * degree.mean()
    tail = np.sort(degree)[-1000:]
    hill = 1 + 1 / np.log(tail[100:] / tail[100]).mean()
    assert 2.2 < hill < 3.0


@pytest.mark.parametrize("homophily", [0.0, 1.0])
def test_extreme_homophily(homophily):
    graph = graph_of(num_nodes=2000, homophily=homophily, num_classes=4)
    same = graph.y[graph.indices.long()] == graph.y[graph.destinations]
    assert float(same.double().mean()) == homophily


def test_features_carry_the_signal():
    raw = generate(PlantedPartition(num_nodes=8000, num_classes=4, num_features=100, signal=5.0))
    means = torch.stack([raw.x[raw.y == c].mean(0) for c in range(4)])
    distance = torch.pdist(means)
    assert float(distance.min()) > 4.0 and float(distance.max()) < 6.0
    assert abs(float((raw.x - means[raw.y]).std()) - 1) < 0.02


def test_seeds():
    spec = PlantedPartition(num_nodes=500)
    first, again = generate(spec), generate(spec)
    other = generate(PlantedPartition(num_nodes=500, seed=1))
    assert torch.equal(first.edge_index, again.edge_index) and torch.equal(first.x, again.x)
    assert not torch.equal(first.y, other.y)
    assert graph_of(num_nodes=500).fingerprint != graph_of(num_nodes=500, seed=1).fingerprint


def test_every_impossible_value_is_named():
    with pytest.raises(InputError) as error:
        generate(PlantedPartition(num_nodes=10, mean_degree=9.0, exponent=1.5, homophily=2.0))
    assert len(error.value.faults) == 3
    assert "dataset.exponent: must be greater than 2, got 1.5" in str(error.value)
